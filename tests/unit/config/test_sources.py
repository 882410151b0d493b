"""Source files and secrets."""

import json
import os
import pickle
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from unshard.config import (
    Endpoint,
    Flavor,
    Source,
    Task,
    environment_connections,
    has_changed,
    load_task,
    resolve,
    storage_access,
)
from unshard.config.sources import Security
from unshard.core.model import ObjectAccess, Server, Tls, Verify
from unshard.errors import UnshardError
from unshard.errors.config import ConnectionInvalid, ConnectionUnknown, PasswordVariableUnset, SecretUnreadable

TASK = "name: shop\ntask-mode: all\ntarget-database: {host: t, user: u}\nmysql-instances: [{source-id: s1}]\n"
FROM = "from: {host: h, user: u}\n"
TLS = "from: {host: h, user: u, security: {"
SECRET = "hunter2-hunter2"


@pytest.fixture
def task_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNSHARD_SECRET_FOLDERS", str(tmp_path))
    (tmp_path / "shop.yaml").write_text(TASK)
    (tmp_path / "sources").mkdir()
    return tmp_path / "shop.yaml"


def add(task_file: Path, text: str, name: str = "sources/s1.yaml") -> Path:
    path = task_file.parent / name
    path.write_text(text)
    return path


def source(task_file: Path, text: str) -> Source:
    add(task_file, text)
    return load_task(task_file).instances[0].source


def refusal(task_file: Path) -> str:
    with pytest.raises(UnshardError) as caught:
        load_task(task_file)
    return str(caught.value)


def test_source_file_of_dm(task_file: Path) -> None:
    text = """\
source-id: s1
enable: true
flavor: mariadb
server-id: 429496001
enable-gtid: false
enable-relay: true
relay-dir: relay-dir
case-sensitive: false
from: {host: 10.0.0.1, port: 3307, user: dm, password: 0123, session: {}}
purge: {interval: 3600, expires: 0, remain-space: 15}
checker: {check-enable: true, backoff-rollback: 5m0s, backoff-max: 5m0s}
filters: []
"""
    found = source(task_file, text)
    assert (found.id, found.server_id, found.flavor) == ("s1", 429496001, Flavor.MARIADB)
    assert found.endpoint == Endpoint("10.0.0.1", 3307, "dm", password="0123")
    warnings = "\n".join(load_task(task_file).warnings)
    for key in ("relay-dir", "interval", "check-enable"):
        assert f"'{key}' has no effect here" in warnings
    assert "from.password: the file contains a password" in warnings
    assert "enable-relay" not in warnings and "0123" not in warnings


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (FROM, "US-1008", "key 'source-id' is missing"),
        ("source-id: s1\n", "US-1008", "key 'from' is missing"),
        ("source-id: s1\nfrom: {host: h}\n", "US-1008", "from: key 'user' is missing"),
        (f"source-id: s1\n{FROM}relay: x\n", "US-1001", "relay: unknown key 'relay'"),
        (f"source-id: s1\n{FROM}purge: {{intervall: 1}}\n", "US-1001", "did you mean 'interval'?"),
        (f"source-id: s1\n{FROM}flavor: oracle\n", "US-1007", "'oracle' is not one of mysql, mariadb"),
        (f"source-id: s1\n{FROM}server-id: 4294967296\n", "US-1007", "is not a whole number from 0 to"),
        (f"source-id: s1\n{FROM}enable: false\n", "US-1016", "source 's1' is disabled in"),
        (f"source-id: s1\n{FROM}filters: [{{schema-pattern: a}}]\n", "US-1008", "filters[0]: key 'action'"),
        (f"source-id: s1\n{TLS}ssl-ca-base64: eA==}}}}\n", "US-1024", "set ssl-ca to the path"),
        (f"source-id: s1\n{TLS}ssl-key-bytes: x}}}}\n", "US-1024", "set ssl-key to the path"),
        (f"source-id: s1\n{TLS}ssl-cert: x}}}}\n", "US-1008", "'ssl-key'"),
        (f"source-id: s1\n{TLS}ssl-key: x}}}}\n", "US-1008", "'ssl-cert'"),
        (f"source-id: s1\n{TLS}verify: some}}}}\n", "US-1007", "one of full, ca, none"),
        (f"source-id: s1\n{TLS}verify: none, cert-allowed-cn: [a]}}}}\n", "US-1013", "cert-allowed-cn"),
        ("source-id: s1\nfrom: {host: h, user: u, password-file: x, password-env: Y}\n", "US-1013", "password-file"),
        ("source-id: s1\nsource-id: s1\n", "US-1005", "'source-id'"),
    ],
)
def test_refused_source_file(task_file: Path, text: str, code: str, words: str) -> None:
    path = add(task_file, text)
    message = refusal(task_file)
    assert message.startswith(f"[{code}] ") and words in message and str(path) in message


def test_only_files_that_are_used_are_read_in_full(task_file: Path) -> None:
    add(task_file, "source-id: s1\n" + FROM)
    add(task_file, "source-id: other\nonly-for: another version\n", "sources/other.yaml")
    assert load_task(task_file).sources == ("s1",)


def test_missing_source_names_the_files_that_were_looked_at(task_file: Path) -> None:
    assert f"{task_file.parent / 'sources'}, which has no *.yaml" in refusal(task_file)
    path = add(task_file, "source-id: other\n")
    message = refusal(task_file)
    assert message.startswith("[US-1015] ") and f"read: {path}" in message


def test_two_files_with_one_id(task_file: Path) -> None:
    first = add(task_file, "source-id: s1\n" + FROM)
    second = add(task_file, "source-id: s1\n" + FROM, "sources/s1_copy.yaml")
    message = refusal(task_file)
    assert message.startswith("[US-1014] ") and f"{second}:1 " in message and f"is already in {first}" in message


def test_listed_files(task_file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.yaml").write_text("source-id: s1\n" + FROM)
    task_file.write_text(TASK + "unshard: {sources: [elsewhere/a.yaml]}\n")
    assert load_task(task_file).instances[0].source.path == elsewhere / "a.yaml"
    task_file.write_text(TASK + "unshard: {sources: [elsewhere/b.yaml]}\n")
    assert refusal(task_file).startswith(f"[US-1002] {elsewhere / 'b.yaml'}")


def connections(**given: Any):
    def find(conn_id: str) -> Mapping[str, Any]:
        assert conn_id == "c"
        return {"host": "ch", "port": 3307, "login": "cl", "password": SECRET, "extra": None, **given}

    return find


def test_a_task_whose_files_have_changed(task_file: Path) -> None:
    """Also a file of a source counts, and one that was removed; a file that the task does not use does not."""
    used = add(task_file, "source-id: s1\n" + FROM)
    for changed in (task_file, used):
        task = load_task(task_file)
        add(task_file, "source-id: s2\n" + FROM, "sources/s2.yaml")
        assert not has_changed(task)
        os.utime(changed, ns=(1, 1))
        assert has_changed(task) and not has_changed(load_task(task_file))
    task = load_task(task_file)
    used.unlink()
    assert has_changed(task)


def test_resolve_with_a_connection() -> None:
    session = (("sql_mode", "ANSI"),)
    found = resolve(Endpoint(None, None, None, conn_id="c", session=session), connections(conn_type="mysql"))
    assert found == Server("ch", 3307, "cl", SECRET, session)


def test_resolve_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(conn_id: str) -> Mapping[str, Any]:
        raise AssertionError(conn_id)

    assert resolve(Endpoint("h", None, "u", password=SECRET), none) == Server("h", 3306, "u", SECRET)
    monkeypatch.setenv("UNSHARD_SHOP", SECRET)
    assert resolve(Endpoint("h", None, "u", password_env="UNSHARD_SHOP"), none).password == SECRET
    monkeypatch.delenv("UNSHARD_SHOP")
    with pytest.raises(PasswordVariableUnset, match="UNSHARD_SHOP with the password of u@h"):
        resolve(Endpoint("h", None, "u", password_env="UNSHARD_SHOP"), none)


def test_password_in_a_file(task_file: Path) -> None:
    found = source(task_file, "source-id: s1\nfrom: {host: h, user: u, password-file: secret/p}\n").endpoint
    path = task_file.parent / "sources/secret/p"
    assert (found.password_file, found.password) == (path, None)
    with pytest.raises(SecretUnreadable, match=rf"{path}: the password cannot be read: No such file"):
        resolve(found, connections())
    path.parent.mkdir()
    path.write_text(f"{SECRET}\r\n")
    assert resolve(found, connections()) == Server("h", 3306, "u", SECRET)
    path.write_bytes(b"\xff" + SECRET.encode())
    with pytest.raises(SecretUnreadable) as caught:
        resolve(found, connections())
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("keys", "verify"),
    [
        ("verify: none", Verify.NONE),
        ("ssl-ca: ca", Verify.FULL),
        ("ssl-ca: ca, verify: ca", Verify.CA),
        ("ssl-ca: ca, cert-allowed-cn: [db]", Verify.CA),
        ("ssl-ca: ca, verify: none", Verify.NONE),
        ("verify: full", Verify.FULL),
    ],
)
def test_certificates_are_looked_at_as_far_as_can_be(task_file: Path, keys: str, verify: Verify) -> None:
    found = source(task_file, f"source-id: s1\nfrom: {{host: h, user: u, security: {{{keys}}}}}\n").endpoint
    (task_file.parent / "sources/ca").write_text("PEM")
    server = resolve(found, connections())
    assert server.tls is not None and server.tls.verify is verify
    assert server.tls.ca == ("PEM" if "ssl-ca" in keys else "")


@pytest.mark.parametrize("keys", ["", "ssl-ca: '', cert-allowed-cn: []", "ssl-ca-bytes: [], ssl-key-base64: ''"])
def test_a_block_of_empty_values_asks_for_no_tls(task_file: Path, keys: str) -> None:
    found = source(task_file, f"source-id: s1\nfrom: {{host: h, user: u, security: {{{keys}}}}}\n").endpoint
    assert resolve(found, connections()).tls is None


def test_certificates_and_keys_are_shown_nowhere(task_file: Path) -> None:
    for name in ("ca", "cert", "key"):
        (task_file.parent / "sources" / name).write_text(f"{SECRET} {name}")
    text = f"source-id: s1\n{TLS}ssl-ca: ca, ssl-cert: cert, ssl-key: key}}}}\n"
    server = resolve(source(task_file, text).endpoint, connections())
    assert server.tls is not None and server.tls.key == f"{SECRET} key"
    assert SECRET not in repr(server) + str(server) + repr(load_task(task_file))
    (task_file.parent / "sources/key").unlink()
    with pytest.raises(SecretUnreadable, match=r"sources/key: the private key cannot be read"):
        resolve(source(task_file, text).endpoint, connections())


@pytest.mark.parametrize(
    ("extra", "verify", "ca"),
    [
        ({"ssl": {"ca": "{}"}}, Verify.FULL, "PEM"),
        ('{"ssl": "{\\"ca\\": \\"{}\\"}"}', Verify.FULL, "PEM"),
        ({"ssl": {"ca": "{}"}, "ssl_mode": "VERIFY_CA"}, Verify.CA, "PEM"),
        ({"ssl_mode": "required"}, Verify.NONE, ""),
        ({"ssl_mode": "VERIFY_IDENTITY"}, Verify.FULL, ""),
    ],
)
def test_a_connection_asks_for_tls_in_airflows_words(tmp_path: Path, extra: Any, verify: Verify, ca: str) -> None:
    (tmp_path / "ca").write_text("PEM")
    given = json.loads(json.dumps(extra).replace("{}", str(tmp_path / "ca")))
    server = resolve(Endpoint(None, None, None, conn_id="c"), connections(extra=given))
    assert server.tls == Tls(verify, ca)
    security = Security(verify=Verify.NONE)
    own = resolve(Endpoint(None, None, None, conn_id="c", security=security), connections(extra=given))
    assert own.tls == server.tls, "no file weakens the settings of a connection"


def test_a_connection_that_asks_for_nothing_has_no_tls_of_its_own() -> None:
    for extra in (None, "", "{}", {"ssl_mode": "PREFERRED"}, {"charset": "utf8"}):
        assert resolve(Endpoint(None, None, None, conn_id="c"), connections(extra=extra)).tls is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": ""}, "has no host"),
        ({"login": None}, "has no login"),
        ({"port": "x"}, "not a TCP port"),
        ({"extra": '{"ssl": {"capath": "x"}}'}, "not a mapping of ca, cert, key"),
        ({"extra": '{"ssl": {"cert": "x"}}'}, "cert and key without the other"),
        ({"extra": '{"ssl": "x"}'}, "'ssl' of its extra is not JSON"),
        ({"extra": {"ssl_mode": "MAYBE"}}, "not one of REQUIRED, VERIFY_CA, VERIFY_IDENTITY"),
        ({"extra": {"ssl_cipher": "NULL"}}, "has 'ssl_cipher'; only ssl"),
        ({"extra": "{"}, "its extra is not JSON"),
    ],
)
def test_connection_that_is_no_use(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConnectionInvalid, match=words):
        resolve(Endpoint(None, None, None, conn_id="c"), connections(**given))


@pytest.mark.parametrize(
    "text",
    [
        "mysql://app:p%40ss%2Fw%23rd@db.example:3307",
        "mysql://app:p%40ss%2Fw%23rd@db.example:3307/?charset=utf8",
        "mysql://app:p%40ss%2Fw%23rd@db.example:3307/?url=http://x",
        '{"conn_type": "mysql", "login": "app", "password": "p@ss/w#rd", "host": "db.example", "port": 3307}',
        '{"login": "app", "password": "p@ss/w#rd", "host": "db.example", "port": "3307", "extra": {"charset": "x"}}',
    ],
)
def test_connection_of_the_environment(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_1", text)
    found = resolve(Endpoint(None, None, None, conn_id="shop_1"), environment_connections)
    assert found == Server("db.example", 3307, "app", "p@ss/w#rd")


@pytest.mark.parametrize(
    ("text", "conn_type", "host", "port"),
    [
        ("spark://local%5B*%5D", "spark", "local[*]", None),
        ("spark://yarn", "spark", "yarn", None),
        ("spark://spark%3A%2F%2Fmaster:7077", "spark", "spark://master", 7077),
        ("spark-connect://connect:15002", "spark_connect", "connect", 15002),
        ('{"conn_type": "spark_connect", "host": "connect"}', "spark_connect", "connect", None),
    ],
)
def test_connection_to_spark(monkeypatch: pytest.MonkeyPatch, text: str, conn_type: str, host: str, port: int) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK", text)
    found = environment_connections("spark")
    assert (found["conn_type"], found["host"], found["port"]) == (conn_type, host, port)


def test_unknown_connection_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_1", raising=False)
    with pytest.raises(ConnectionUnknown, match="AIRFLOW_CONN_SHOP_1"):
        environment_connections("shop_1")


@pytest.mark.parametrize(
    "text",
    [
        "mysql",
        "mysql://",
        f"mysql://u:{SECRET}@h:port",
        '{"password": "' + SECRET,
        "[]",
        f"mysql://u:{SECRET}@[h",
        f"mysql://u:{SECRET}://x",
    ],
)
def test_invalid_connection_is_not_quoted(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", text)
    with pytest.raises(ConnectionInvalid) as caught:
        environment_connections("c")
    assert SECRET not in str(caught.value) and SECRET not in repr(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "line",
    [
        f"password: *{SECRET}",
        f"password: !{SECRET} x",
        f"password: &{SECRET} [x]",
        f"password: [{SECRET}]",
        f"password: {{{SECRET}: 1}}",
        f"password: '{SECRET}",
        f'password: "{SECRET}\\q"',
        f"password: %{SECRET}",
        f"password-env: {SECRET}",
        f"conn-id: mysql://u:{SECRET}@h",
        f"password: @{SECRET}",
        f"password: {SECRET}: x",
        f"password:{SECRET}",
        f"  password:{SECRET}",
        f"password: {SECRET}\n  conn-id: c",
    ],
)
def test_no_message_holds_the_password(task_file: Path, line: str) -> None:
    add(task_file, f"source-id: s1\nfrom:\n  host: h\n  user: u\n  {line}\n")
    with pytest.raises(UnshardError) as caught:
        load_task(task_file)
    error = caught.value
    assert SECRET not in str(error) and SECRET not in repr(error) and SECRET not in repr(error.args)


def test_no_value_shows_the_password(task_file: Path) -> None:
    add(task_file, f"source-id: s1\nfrom: {{host: h, user: u, password: {SECRET}}}\n")
    task = load_task(task_file)
    server = resolve(task.instances[0].source.endpoint, environment_connections)
    assert server.password == SECRET
    for value in (task, task.instances[0].source.endpoint, server, task.warnings):
        assert SECRET not in repr(value) and SECRET not in str(value)
    assert pickle.loads(pickle.dumps(task)) == task


BUCKET = "s3://bucket/x"
AWS = {"conn_type": "aws", "login": "AKIA", "password": SECRET}


def stored_at(task_file: Path, path: str, conn_id: str = "") -> Task:
    add(task_file, f"source-id: s1\n{FROM}")
    named = f", storage-conn-id: {conn_id}" if conn_id else ""
    task_file.write_text(f"{TASK}unshard: {{storage-path: '{path}'{named}}}\n")
    return load_task(task_file)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (AWS, ObjectAccess("AKIA", SECRET)),
        ({**AWS, "extra": '{"region_name": "eu-west-1"}'}, ObjectAccess("AKIA", SECRET, region="eu-west-1")),
        ({**AWS, "extra": {"endpoint_url": "http://h:1"}}, ObjectAccess("AKIA", SECRET, endpoint="http://h:1")),
        ({**AWS, "extra": {"aws_session_token": "t"}}, ObjectAccess("AKIA", SECRET, "t")),
        ({"conn_type": "aws", "extra": {"role_arn": "arn:x"}}, ObjectAccess(role="arn:x")),
        ({"conn_type": "aws"}, ObjectAccess()),
        ({**AWS, "extra": {"verify": False}}, "its extra has verify; only"),
        ({**AWS, "extra": {"role_arn": "arn:x"}}, "role_arn"),
        ({**AWS, "extra": {"endpoint_url": f"http://u:{SECRET}@h"}}, "endpoint_url has credentials"),
        ({**AWS, "password": None}, "only one of login"),
        ({**AWS, "conn_type": "mysql"}, "not of the type aws"),
    ],
)
def test_access_to_an_object_store(task_file: Path, found: dict[str, object], wanted: ObjectAccess | str) -> None:
    options = stored_at(task_file, BUCKET, "store").options
    if isinstance(wanted, str):
        with pytest.raises(ConnectionInvalid, match=wanted) as caught:
            storage_access(options, lambda conn_id: found)
        assert SECRET not in str(caught.value)
        return
    got = storage_access(options, lambda conn_id: found)
    assert got == wanted
    assert SECRET not in repr(got) + str(got)


def test_access_to_an_object_store_as_the_environment_says(task_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    options = stored_at(task_file, BUCKET).options
    assert storage_access(options, environment_connections) == ObjectAccess()
    for name, value in {"SESSION_TOKEN": "t", "DEFAULT_REGION": "r", "ENDPOINT_URL": "http://h"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    nobody = ObjectAccess(region="r", endpoint="http://h")
    assert storage_access(options, environment_connections) == nobody, "a token is nothing without its key"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    found = storage_access(options, environment_connections)
    assert found == ObjectAccess("AKIA", SECRET, "t", "r", "http://h")
    monkeypatch.setenv("AIRFLOW_CONN_STORE", f"aws://AKIA:{SECRET}@/?region_name=r2&endpoint_url=http%3A%2F%2Fh2%3A9")
    found = storage_access(stored_at(task_file, BUCKET, "store").options, environment_connections)
    assert found == ObjectAccess("AKIA", SECRET, region="r2", endpoint="http://h2:9")


def test_a_folder_needs_no_connection(task_file: Path) -> None:
    task = stored_at(task_file, "x", "store")
    assert "'storage-conn-id' has no effect here" in " ".join(task.warnings)
    assert storage_access(task.options, environment_connections) == ObjectAccess()
