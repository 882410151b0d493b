"""Text of a source on a terminal, in suggested commands and in messages (docs/security.md)."""

import io
import os
import shlex
import subprocess

import pytest

from unshard.cli.console import Answer, Console
from unshard.core.masking import refusal, statement
from unshard.core.model import Shard, TableId
from unshard.core.shown import shell, visible
from unshard.errors.config import UsageWrong
from unshard.operate.command import Replace, Skip, shard_argument, typed

HOSTILE = [
    "t\x1b[2J\x1b]0;x\x07",
    "t\rDROP",
    "t\x9b31m",
    "a\u202eb\u2066c",
    "t;touch /tmp/x #",
    "$(id)`id`",
    "it's",
    'a"b\\',
    "-rf *",
    "a b\tc",
    "a\u00a0b\u2028c",
    "\u7528\u6237",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_word_of_a_suggested_command(name: str) -> None:
    command = f"printf %s {shell(name)}"
    assert command.isprintable()
    found = in_bash(command)
    assert found == name
    shard = Shard("s1", TableId("d", name))
    for each in (Skip(f"{name}-1", shard), Replace(f"{name}-1", ("ALTER TABLE t",), shard)):
        text = typed(each, "a b.yaml")
        found = in_bash(f"unshard() {{ printf '%s|' \"$@\"; }}; {text}")
        assert text.isprintable() and found.split("|")[1:3] == ["a b.yaml", f"{name}-1"]
        assert found.split("|")[4] == shard_argument(shard)


@pytest.mark.parametrize("name", HOSTILE)
def test_control_characters_are_escaped_on_a_terminal(name: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(given_out=out, given_err=err, ask=lambda question: out.write(question) and "yes")
    console.note(name)
    console.warn([name])
    console.answer(Answer({}, [name, name]))
    console.failure(UsageWrong(name, name))
    console.confirm(name, is_confirmed=False)
    for text in (out.getvalue(), err.getvalue()):
        assert text.replace("\n", "").isprintable()
    assert visible("a\nb") == "a\nb" and visible("\x1b\udc80") == "\\x1b\\udc80"


def in_bash(command: str) -> str:
    """Return what a command prints."""
    environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    return subprocess.run(["bash", "-c", command], capture_output=True, check=True, env=environment).stdout.decode()


SECRETS = [
    "CREATE USER u IDENTIFIED BY PASSWORD 'hidden'",
    "CREATE USER u IDENTIFIED VIA mysql_native_password USING 'hidden'",
    "CREATE USER u IDENTIFIED VIA a USING PASSWORD('hidden') OR b AS 'hidden'",
    "CREATE USER u IDENTIFIED WITH caching_sha2_password BY 'hidden' REPLACE 'hidden' RETAIN CURRENT PASSWORD",
    "ALTER USER u IDENTIFIED WITH 'p' AS 0x68696464656e68696464656e",
    "CREATE USER a IDENTIFIED BY 'hidden' AND IDENTIFIED WITH p BY \"hidden\", b IDENTIFIED BY 'x''hidden'",
    "SET PASSWORD FOR 'u'@'h' = PASSWORD('hidden')",
    "SET PASSWORD FOR 'u'@'%' = 'hidden'",
    "SET PASSWORD = 'hidden' REPLACE 'hidden'",
    "SET PASSWORD TO 'hidden'",
    "ALTER TABLE t CONNECTION 'mysql://u:hidden@h/d/t'",
    "ALTER TABLE t COMMENT='x' CONNECTION='hidden'",
    "UPDATE mysql.user SET authentication_string = 'hidden'",
    "SELECT OLD_PASSWORD( N'hidden' 'hidden' ), password(_utf8mb4'hidden')",
    "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h', PASSWORD 'hidden')",
    "CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD = /* c */ 'hidden'",
    "CREATE USER u /*!50000 IDENTIFIED /* 'x' */ BY 'hidden' */",
    "CREATE USER u COMMENT 'the password' IDENTIFIED BY 'hidden'",
    "CREATE USER u IDENTIFIED BY -- 'x'\n 'hidden'",
    "CREATE USER u IDENTIFIED BY 'hidden is cut of",
    "CREATE USER u IDENTIFIED VIA p USING 'hidden is cut of",
    "ALTER USER u IDENTIFIED BY 'hidden' REPLACE 'hidden is cut of",
    "SET PASSWORD = 'hidden' REPLACE 'hidden is cut of",
    "EXECUTE IMMEDIATE 'ALTER USER u IDENTIFIED WITH p BY \\'hidden\\''",
    "PREPARE s FROM 'CREATE USER u IDENTIFIED BY ''hidden'' '",
    "CREATE TABLE t (a INT) ENGINE=CONNECT OPTION_LIST='user=u,password=hidden,host=h'",
    "CREATE TABLE t (a INT) ENGINE=CONNECT CONNECTION='Driver=x;UID=u;PWD=hidden'",
    'ALTER TABLE t COMMENT=\'srv "x", password "hidden"\'',
    "ALTER TABLE t COMMENT \"passwd 'hidden', user 'x'\"",
    "ALTER TABLE t COMMENT='user ''x'', password ''hidden'' '",
    "ALTER TABLE t COMMENT='password \\'hidden\\''",
    "ALTER TABLE t COMMENT 'mysql://u:hidden@h/d'",
    "ALTER TABLE t `CONNECTION`='hidden'",
    "BACKUP DATABASE d TO 's3://b/p?access-key=a&secret-access-key=hidden'",
    "SET GLOBAL s3_secret_key='hidden', @@GLOBAL.wsrep_sst_auth = 'hidden'",
    "UPDATE t SET `password` = 'hidden'",
    "ALTER TABLE t ADD c BLOB AS (AES_ENCRYPT(a, UNHEX(SHA2('hidden', 512)), 'hidden')) STORED",
    "ALTER TABLE t ADD c BLOB AS (ENCODE(CONCAT(a, 'hidden'), 'hidden'))",
    "ALTER TABLE t ADD c TEXT DEFAULT (PASSWORD(CONCAT('hidden', _utf8mb4 x'68696464656e')))",
    "ALTER TABLE t ADD c TEXT DEFAULT (PASSWORD(_utf8mb4 0x68696464656e))",
    "[US-4004] a statement: SET PASSWORD FOR 'u'@'h' = 'hidden'",
    "CREATE PROCEDURE p() BEGIN SET PASSWORD FOR x = 'hidden'; END",
    "You have an error in your SQL syntax near 'x IDENTIFIED BY 'hidden'' at line 1",
    "You have an error in your SQL syntax near 'VIA p USING 'hidden' REQUIRE IDENTIFIED' at line 1",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked(text: str) -> None:
    masked = statement(text)
    assert "hidden" not in masked and "68696464656e" not in masked.lower()
    assert "…" in masked
    assert statement(masked) == masked, "masking twice changes nothing"


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD COLUMN password VARCHAR(9) DEFAULT 'x' COMMENT 'y'",
        "ALTER TABLE t COMMENT 'x', ADD c ENUM('a', 'b') AS ('z') STORED",
        "CREATE TABLE t (a VARCHAR(9) DEFAULT 'replace by', b INT COMMENT 'it''s') PARTITION BY LIST COLUMNS (a)",
        "ALTER TABLE t ALTER connection SET DEFAULT 'x'",
        "ALTER TABLE t ADD d BLOB AS (AES_ENCRYPT(a, b)), ADD e TEXT DEFAULT 'x' COMMENT 'see https://h:80/a@b'",
        "CREATE TABLE t (a INT COMMENT 'the password of ''x'' ', b INT) COMMENT 'password'",
        "[US-1017] connection 'shop_1' is not defined",
        "the source's connection 'shop_1' needs a password (see 'x')",
    ],
)
def test_other_text_is_shown(text: str) -> None:
    assert statement(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Table has no partition for value hidden",
        "Cannot convert string 'hidden' from utf8mb4 to latin1",
        "Invalid utf8mb4 character string: 'hidden'",
        "Incorrect datetime value: 'hidden' for function str_to_date",
        "BIGINT UNSIGNED value is out of range in '(`d`.`t`.`a` - hidden)'",
        'strconv.ParseInt: parsing "hid\\"hidden": invalid syntax',
        "Data truncated for column 'c', value is 'hidden'",
        "Out of range value for column 'c', the value is 'hid'hidden'",
        "constant hidden overflows tinyint",
        "Illegal double 'hidden' value found during parsing",
        "Cannot convert 'hid'hidden' character 0xE9 to 'latin1'",
        "Longitude -hidden is out of range in function st_geomfromtext. It must be within (-180.0, 180.0].",
        "Found a row in wrong partition 1 from REBUILD/REORGANIZED: id:hidden c:hidden",
        "assertion failed: key: hidden, assertion: NotExist, start_ts: 1, existing start ts: 2",
        "Data cannot be converted to a valid vector: 'hidden'",
        "Invalid vector text: [hidden",
        "Write conflict, key={tableName=d.t, handle=hidden}, primary={indexID=1, indexValues={hidden, hidden, }}",
        "Duplicate entry 'hid'den' hidden' for key 't.PRIMARY'",
    ],
)
def test_values_in_errors_are_masked(text: str) -> None:
    assert "hidden" not in refusal(text) and refusal(refusal(text)) == refusal(text)


def test_words_stay_as_they_are() -> None:
    for word in ("shop.yaml", "s2/shop_7.orders_3", "shop-shop.orders-1", "/etc/unshard/a b.yaml"):
        assert shell(word) == shlex.quote(word)
