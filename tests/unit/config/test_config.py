"""Task and source files: what is read, and what is refused in which words."""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from unshard.config import Consistency, OnDuplicate, ShardMode, TaskMode, configpage, load_task
from unshard.config.reading import starting_at
from unshard.core.model import Location, TableId
from unshard.core.relay.gtidset import History, contains, read_set
from unshard.core.rules.filters import Action, Event
from unshard.core.rules.reshaping import Extracted
from unshard.core.window.plan import WindowLimits
from unshard.errors import UnshardError
from unshard.errors.config import BadValue, PatternInvalid, RouteAmbiguous, SourceNotInTask
from unshard.errors.meta import StartNotNew
from unshard.units.full.snapshot import last_before

ROOT = Path(__file__).parents[3]
SOURCE = "source-id: {id}\nfrom: {{host: h, user: u, password-env: P}}\n"
HEAD = "name: shop\ntask-mode: all\ntarget-database: {host: t, user: u, password-env: P}\n"
INSTANCE = "mysql-instances: [{source-id: s1, route-rules: [r]}]\n"
ROUTES = "routes: {r: {schema-pattern: a_*, table-pattern: t_*, target-schema: a, target-table: t}}\n"
MINIMAL = HEAD + INSTANCE + ROUTES

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a task file with two sources beside it."""

    def write(task: str = MINIMAL, **sources: str) -> Path:
        (tmp_path / "sources").mkdir(exist_ok=True)
        for name, text in {"s1": SOURCE.format(id="s1"), "s2": SOURCE.format(id="s2"), **sources}.items():
            (tmp_path / "sources" / f"{name}.yaml").write_text(text)
        (tmp_path / "shop.yaml").write_text(task)
        return tmp_path / "shop.yaml"

    return write


def refusal(path: Path) -> str:
    with pytest.raises(UnshardError) as caught:
        load_task(path)
    return str(caught.value)


def instance(text: str) -> str:
    return f"{HEAD}{ROUTES}mysql-instances:\n- {{source-id: s1, route-rules: [r], {text}}}\n"


def test_minimal_task_has_the_documented_defaults(write: Write) -> None:
    path = write()
    task = load_task(path)
    assert (task.name, task.path, task.task_mode, task.shard_mode) == (
        "shop",
        path,
        TaskMode.ALL,
        ShardMode.NONE,
    )
    assert (task.meta_schema, task.timezone, task.warnings) == ("unshard_meta", "+00:00", ())
    options = task.options
    assert (options.schedule, options.lock_timeout) == ("* * * * *", timedelta(hours=1))
    assert options.spark_connection == options.bulk_connection == "local[*]"
    assert options.window == WindowLimits(128 * 1024 * 1024, 1_000_000, 30_000)
    assert task.storage == str(path.parent / "unshard-storage" / "shop")
    part = task.instance("s1")
    assert (part.dump.threads, part.dump.chunk_rows, part.dump.consistency) == (4, 200_000, Consistency.AUTO)
    assert (part.load.threads, part.load.on_duplicate) == (16, OnDuplicate.ERROR)
    assert (part.sync.safe_mode, part.start) == (False, None)
    assert part.routing.target_of(TableId("a_1", "t_1")) == TableId("a", "t")
    assert task.sources == ("s1",)


BROKEN = """name: shop
task-mode: sometimes
no-such-key: 1
target-database: {host: t, user: u, password-env: P, port: x, session: [a]}
mysql-instances:
- {source-id: s1, route-rules: [r, gone], loader-thread: -1, mydumper-config-name: gone}
- {source-id: s9}
- {source-id: s2}
routes: {r: {schema-pattern: a_*, target-schma: a}}
"""


def test_all_errors_of_a_file_are_told_at_once(write: Write) -> None:
    told = refusal(write(BROKEN, s2="source-id: s2\nfrom: {host: h, user: u, prt: 1}\nserver-id: x\n"))
    assert told.startswith("[US-1050] 12 errors:\n")
    lines = told.splitlines()[1:]
    for place in (
        "shop.yaml:2 task-mode",
        "shop.yaml:3 no-such-key",
        "shop.yaml:4 target-database.port",
        "shop.yaml:4 target-database.session",
        "shop.yaml:6 mysql-instances[0].loader-thread",
        "shop.yaml:6 mysql-instances[0].route-rules",
        "shop.yaml:6 mysql-instances[0].mydumper-config-name",
        "shop.yaml:7 mysql-instances[1].source-id",
        "shop.yaml:9 routes.r.target-schma",
        "shop.yaml:9 routes.r",
        "s2.yaml:2 from.prt",
        "s2.yaml:3 server-id",
    ):
        assert [line for line in lines if f"{place}: " in line], (place, told)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (MINIMAL.replace("host: t, ", ""), ["shop.yaml:3 target-database: "]),
        (
            MINIMAL.replace("host: t, ", "").replace("[r]", "[x]"),
            ["shop.yaml:3 target-database: ", "mysql-instances[0].route-rules: "],
        ),
        (
            MINIMAL + "filters: {f: {schema-pattern: a}, g: {schema-pattern: b}}\n",
            ["shop.yaml:6 filters.f: ", "shop.yaml:6 filters.g: "],
        ),
        (MINIMAL.replace(ROUTES, "routes: 1\n"), ["shop.yaml:5 routes: "]),
    ],
    ids=["one", "of several keys", "blocks without a use", "no blocks"],
)
def test_no_error_follows_from_another(write: Write, text: str, places: list[str]) -> None:
    told = refusal(write(text))
    assert all(place in told for place in places), told
    assert told.count("[US-") == len(places) + (len(places) > 1), told


def test_source_that_the_task_does_not_have(write: Write) -> None:
    with pytest.raises(SourceNotInTask, match="its sources: s1"):
        load_task(write()).instance("s2")


def test_server_id_is_stable_and_differs_between_sources_and_tasks(write: Write) -> None:
    both = MINIMAL.replace(
        "[{source-id: s1, route-rules: [r]}]", "[{source-id: s1, route-rules: [r]}, {source-id: s2}]"
    )
    ids = [
        i.source.server_id
        for name in ("shop", "shop", "other")
        for i in load_task(write(both.replace("name: shop", f"name: {name}"))).instances
    ]
    assert ids[:2] == ids[2:4] and len(set(ids)) == 4
    assert all(0 < number < 2**32 for number in ids)


DM_TASK = """\
name: "orders_merge"
task-mode: incremental
is-sharding: true
shard-mode: "pessimistic"
meta-schema: "dm_meta"
timezone: "Asia/Shanghai"
case-sensitive: false
online-ddl: false
clean-dump-file: true
enable-heartbeat: false
experimental: {async-checkpoint-flush: false}
target-database:
  host: "10.0.0.9"
  port: 4000
  user: "root"
  password: ""
  max-allowed-packet: 67108864
  session: {sql_mode: "ANSI_QUOTES", foreign_key_checks: 0}
mysql-instances:
  - source-id: "s1"
    meta: {binlog-name: "mysql-bin.000001", binlog-pos: 4}
    route-rules: ["r-orders", "r-schema"]
    filter-rules: []
    column-mapping-rules: []
    black-white-list: "bw"
    mydumper-config-name: "global"
    mydumper-thread: 8
    loader-config-name: "global"
    loader-thread: 2
    syncer-config-name: "global"
    syncer-thread: 16
  - source-id: "s2"
    meta: {binlog-name: "mysql-bin.000002"}
    route-rules: ["r-orders"]
    mydumper: {threads: 1, rows: 0, extra-args: "--consistency=none"}
    loader: {on-duplicate-logical: "replace"}
    syncer: {safe-mode: true, worker-count: 4}
routes:
  r-orders: {schema-pattern: "shop_*", table-pattern: "orders_*", target-schema: "shop", target-table: "orders"}
  r-schema: {schema-pattern: "shop_*", target-schema: "shop"}
filters: {}
black-white-list:
  bw:
    do-dbs: ["shop_1", "~^shop_\\\\d+$"]
    ignore-dbs: []
    do-tables: [{db-name: "shop_*", tbl-name: "orders_*"}]
mydumpers:
  global:
    mydumper-path: "./bin/mydumper"
    threads: 4
    chunk-filesize: "64"
    rows: 1000
    skip-tz-utc: true
    extra-args: "--consistency auto"
loaders:
  global: {pool-size: 16, dir: "./dumped_data", import-mode: "sql", on-duplicate: ignore}
syncers:
  global: {worker-count: 16, batch: 100, enable-gtid: false, meta-file: "", safe-mode: false}
"""


def test_a_file_of_dm_is_read(write: Write) -> None:
    task = load_task(write(DM_TASK))
    assert (task.shard_mode, task.meta_schema, task.timezone) == (ShardMode.PESSIMISTIC, "dm_meta", "Asia/Shanghai")
    assert task.target.session == (("sql_mode", "ANSI_QUOTES"), ("foreign_key_checks", "0"))
    first, second = task.instances
    assert (first.dump.threads, first.dump.chunk_rows, first.load.threads) == (8, 1000, 2)
    assert (first.load.on_duplicate, second.load.on_duplicate) == (OnDuplicate.IGNORE, OnDuplicate.REPLACE)
    assert (first.sync.safe_mode, second.sync.safe_mode) == (False, True)
    assert (first.start, second.start) == (Location("mysql-bin.000001", 4), Location("mysql-bin.000002", 4))
    assert (second.dump.threads, second.dump.chunk_rows) == (1, sys.maxsize)
    assert first.routing.target_of(TableId("shop_3", "orders_1")) == TableId("shop", "orders")
    assert first.routing.target_of(TableId("shop_3", "log")) is None
    assert second.routing.target_of(TableId("shop_3", "log")) == TableId("shop_3", "log")


def test_keys_without_a_meaning_here_are_warned_of_by_name_and_line(write: Write) -> None:
    warnings = load_task(write(DM_TASK)).warnings
    named = ("mydumper-path", "chunk-filesize", "batch", "dir", "max-allowed-packet", "syncer-thread")
    for key in named:
        assert any(f"'{key}' has no effect here: " in warning for warning in warnings), key
    line = DM_TASK.splitlines().index('    black-white-list: "bw"') + 1
    assert any(f"shop.yaml:{line} mysql-instances[0].black-white-list: " in warning for warning in warnings)
    silent = ("meta-file", "skip-tz-utc", "clean-dump-file", "enable-heartbeat")
    assert not [w for w in warnings for key in silent if f"'{key}'" in w]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-f shop.*", "'-f' is a key of DM that unshard does not use (let the block-allow-list select"),
        ("--consistency none --filter=!a.*", "'--filter' is a key of DM that unshard does not use (let the block"),
        ("--snapshot 7", "'--snapshot' is a key of DM that unshard does not use (remove it"),
    ],
)
def test_options_of_dumpling_say_what_there_is_instead(write: Write, options: str, words: str) -> None:
    message = refusal(write(instance(f"mydumper: {{extra-args: '{options}'}}")))
    assert message.startswith("[US-1024] ") and words in message


@pytest.mark.parametrize(
    ("options", "mode", "kept", "told"),
    [
        ("-B a_1,a_2", "full", {"a_1.t_1", "a_1.t_2", "a_2.t_1"}, ""),
        ("-Ba_1 --tables-list=t_1", "dump", {"a_1.t_1"}, ""),
        ("-T a_1.t_1 -T 'a_2.t_1,a_3.t_1'", "full", {"a_1.t_1", "a_2.t_1", "a_3.t_1"}, ""),
        ("-T a_1.t_1 --database a_1", "all", {"a_1.t_1", "a_1.t_2", "a_2.t_1", "a_3.t_1"}, "'--tables-list' is not"),
        (
            "--statement-size=7 -F 64MiB -W --no-locks",
            "full",
            {"a_1.t_1", "a_1.t_2", "a_2.t_1", "a_3.t_1"},
            "no effect",
        ),
    ],
)
def test_options_of_dumpling_select_tables(write: Write, options: str, mode: str, kept: set[str], told: str) -> None:
    task = load_task(write(instance(f'mydumper: {{extra-args: "{options}"}}').replace("mode: all", f"mode: {mode}")))
    routing = task.instances[0].routing
    tables = [TableId("a_1", "t_1"), TableId("a_1", "t_2"), TableId("a_2", "t_1"), TableId("a_3", "t_1")]
    assert {str(table) for table in tables if routing.target_of(table)} == kept
    assert bool(told) == bool(task.warnings) and told in "".join(task.warnings)


def test_options_of_dumpling_replace_keys(write: Write) -> None:
    (found,) = load_task(
        write(instance("mydumper: {threads: 4, extra-args: -t 7 --rows=90}, mydumper-thread: 5"))
    ).instances
    assert (found.dump.threads, found.dump.chunk_rows) == (7, 90)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-B a_1 -B a_2 -T t_1", "'t_1' is not a table with its schema"),
        ("-T t_1", "'t_1' is not a table with its schema"),
        ("-B b", "'b' is not a schema that the block-allow list includes"),
        ("-t many", "'many' is not a whole number"),
    ],
)
def test_options_of_dumpling_that_cannot_be_applied(write: Write, options: str, words: str) -> None:
    text = instance(f"block-allow-list: l, mydumper: {{extra-args: {options}}}").replace(
        "task-mode: all", "task-mode: full"
    )
    message = refusal(write(text + "block-allow-list: {l: {do-dbs: [a_*]}}\n"))
    assert message.startswith("[US-1007] ") and words in message


@pytest.mark.parametrize("block", ["shard-mode: ''\nis-sharding: true", "shard-mode: pessimistic\nis-sharding: false"])
def test_switches_that_contradict_each_other(write: Write, block: str) -> None:
    message = refusal(write(MINIMAL + block + "\n"))
    assert message.startswith("[US-1030] ") and "shop.yaml:7 is-sharding" in message


@pytest.mark.parametrize(
    ("block", "zone", "words"),
    [
        ("time_zone: Asia/Shanghai", "Asia/Shanghai", ""),
        ("TIME_ZONE: '+08:00'", "+08:00", ""),
        ("time_zone: SYSTEM", "+00:00", "'time_zone' is not applied: set the key timezone"),
    ],
)
def test_the_time_zone_of_target_sessions_is_that_of_the_task(write: Write, block: str, zone: str, words: str) -> None:
    task = load_task(write(MINIMAL.replace("host: t,", f"host: t, session: {{{block}}},")))
    assert (task.timezone, task.target.session) == (zone, ())
    assert bool(words) == bool(task.warnings) and words in "".join(task.warnings)
    own = load_task(write(MINIMAL.replace("host: t,", f"host: t, session: {{{block}}},") + "timezone: Europe/Berlin\n"))
    assert own.timezone == "Europe/Berlin" and "the key timezone of the task takes precedence" in own.idle[0]


def test_the_time_zone_of_source_sessions_has_no_effect(write: Write) -> None:
    task = load_task(write(MINIMAL, s1=SOURCE.format(id="s1").replace("host: h,", "host: h, session: {time_zone: x},")))
    assert task.instances[0].source.endpoint.session == ()
    assert "'time_zone' has no effect here: every session of a source runs in UTC" in task.idle[0]


def test_the_name_of_constraints_in_older_versions(write: Write) -> None:
    rule = "filters: {f: {schema-pattern: '*', events: [modify constaints], action: Ignore}}\n"
    events = load_task(write(instance("filter-rules: [f]") + rule)).instances[0].routing.events
    assert events.judge(TableId("a_1", "t_1"), Event(("modify constraint",), "")).action is Action.IGNORE


@pytest.mark.parametrize("event", ["split table partition", "Recover Table", "alter ttl info", "alter ttl remove", ""])
def test_events_that_only_tidb_has_match_nothing(write: Write, event: str) -> None:
    rule = f"filters: {{f: {{schema-pattern: '*', events: ['{event}'], action: Ignore}}}}\n"
    task = load_task(write(instance("filter-rules: [f]") + rule))
    assert "no statement of a source has this name" in task.idle[0]
    events = task.instances[0].routing.events
    assert events.judge(TableId("a_1", "t_1"), Event(("drop table",), "DROP TABLE t_1")).action is Action.DO


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("shop", "shop"),
        ("a.b-c_1", "a.b-c_1"),
        ("t-Ë!s`t", "t-__s_t.0d9ab8b3"),
        (".hidden", "hidden.9ab8b3"),
        ("购物", "__.9ab8b3"),
    ],
)
def test_task_names_with_special_characters(write: Write, name: str, plain: str) -> None:
    task = load_task(write(MINIMAL.replace("name: shop", f'name: "{name}"')))
    assert task.name == name and task.plain_name.split(".")[0] == plain.split(".", maxsplit=1)[0]
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", task.plain_name)
    assert (task.plain_name == name) == (plain == name)
    assert task.storage.endswith(f"/{task.plain_name}")


@pytest.mark.parametrize("name", ["a/b", " a", "a\tb", "a😀", "x" * 65])
def test_names_that_are_none(write: Write, name: str) -> None:
    assert "is not a task name" in refusal(write(MINIMAL.replace("name: shop", f"name: '{name}'")))


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("/Q7B9DizNLLTTfiZHv9WoEAKamfpIUs=", "looks like output of `dmctl encrypt`"),
        ("'******'", "dmctl shows ****** in its place"),
        ("AAECAwQFBgcICQoLDA0ODw==", "the file contains a password"),
        ("AAECAwQFBgcICQoLDA0OD0BzZWNyZXQ", "the file contains a password"),
    ],
)
def test_passwords_of_dmctl_are_named_and_not_shown(write: Write, password: str, words: str) -> None:
    task = load_task(write(MINIMAL.replace("password-env: P", f"password: {password}")))
    assert words in task.warnings[0] and password not in task.warnings[0]
    assert task.target.password == password.strip("'")


def test_a_start_before_the_first_transaction(write: Write) -> None:
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    text = instance(f"meta: {{binlog-gtid: '{uuid}:0'}}").replace("task-mode: all", "task-mode: incremental")
    (found,) = load_task(write(text)).instances
    assert (found.start_gtid, History(found.start_gtid).text, found.start_unset) == (f"{uuid}:0", "", "")
    assert contains(f"{uuid}:1-9", found.start_gtid) and read_set(f"{uuid}:0-7:9") == {uuid: [(1, 7), (9, 9)]}


@pytest.mark.parametrize("meta", ["binlog-gtid: ''", "binlog-name: '', binlog-pos: 0", "binlog-pos: 4"])
def test_a_start_without_a_position_needs_a_start_time(write: Write, meta: str) -> None:
    text = instance(f"meta: {{{meta}}}").replace("task-mode: all", "task-mode: incremental")
    (found,) = load_task(write(text)).instances
    assert (found.start, found.start_gtid) == (None, "") and found.start_unset.endswith("mysql-instances[0].meta")
    (found,) = load_task(write(text.replace("task-mode: incremental", "task-mode: all"))).instances
    assert found.start_unset == ""


def test_empty_blocks_with_an_old_name_are_no_blocks(write: Write) -> None:
    text = instance("block-allow-list: l, black-white-list: ''")
    task = load_task(write(text + "block-allow-list: {l: {do-dbs: [a_1]}}\nblack-white-list: {}\n"))
    assert task.warnings == () and task.instances[0].routing.target_of(TableId("a_2", "t_1")) is None


def test_a_start_needs_a_place(write: Write) -> None:
    message = refusal(write(instance("meta: {binlog-pos: 7}").replace("task-mode: all", "task-mode: incremental")))
    assert message.startswith("[US-1008] ") and "'binlog-name'" in message


def test_meta_has_no_effect_where_the_dump_decides(write: Write) -> None:
    task = load_task(write(instance("meta: {binlog-name: b.000001}")))
    assert task.instances[0].start is None
    assert "'meta' has no effect in task-mode all" in task.warnings[0]


REFUSED = {
    "unknown key": (
        MINIMAL + "taks-mode: all\n",
        "US-1001",
        "shop.yaml:6 taks-mode: unknown key 'taks-mode', did you mean 'task-mode'?",
    ),
    "allowed keys": (MINIMAL + "zzz: 1\n", "US-1001", "allowed here: name, task-mode, shard-mode,"),
    "unknown key below": (
        instance("loader: {pool_size: 1}"),
        "US-1001",
        "mysql-instances[0].loader.pool_size: unknown key 'pool_size', did you mean 'pool-size'?",
    ),
    "unknown key in a named block": (
        MINIMAL.replace("target-table", "target-tabel"),
        "US-1001",
        "routes.r.target-tabel",
    ),
    "unknown server key": (MINIMAL.replace("host: t,", "hots: t,"), "US-1001", "target-database.hots"),
    "syntax": ("name: [a\n", "US-1003", "shop.yaml:2: invalid YAML"),
    "tab": ("name:\n\tx: 1\n", "US-1003", "shop.yaml:2: invalid YAML"),
    "two documents": (MINIMAL + "---\nname: x\n", "US-1003", "invalid YAML"),
    "no mapping": ("- a\n", "US-1003", "the file must be a mapping of keys and values"),
    "own tag": ("name: !!python/object:os.system x\n", "US-1003", "begins with ! and is not quoted"),
    "recursion": ("name: &a [*a]\n", "US-1003", "an alias is inside its own anchor"),
    "empty": ("", "US-1004", "the file is empty"),
    "only a comment": ("# nothing\n---\n", "US-1004", "the file is empty"),
    "duplicate key": (
        MINIMAL + "name: again\n",
        "US-1005",
        "shop.yaml:6: key 'name' is repeated, first in line 1",
    ),
    "duplicate key below": (
        MINIMAL.replace("target-schema: a,", "target-schema: a, target-schema: b,"),
        "US-1005",
        "'target-schema'",
    ),
    "list for text": (
        MINIMAL.replace("name: shop", "name: [shop]"),
        "US-1006",
        "shop.yaml:1 name: a list instead of text",
    ),
    "text for list": (instance("").replace("[r]", "r"), "US-1006", "route-rules: a single value instead of a list"),
    "text for mapping": (
        MINIMAL.replace("{host: t, user: u, password-env: P}", "x"),
        "US-1006",
        "target-database: a single value instead of a mapping",
    ),
    "list for mapping": (MINIMAL + "loaders: [a]\n", "US-1006", "loaders: a list instead of a mapping"),
    "mapping for text": (
        MINIMAL.replace("target-schema: a,", "target-schema: {a: b},"),
        "US-1006",
        "a mapping instead of text",
    ),
    "text for integer": (instance("mydumper-thread: many"), "US-1007", "'many' is not a whole number of at least 0"),
    "octal": (instance("mydumper-thread: 010"), "US-1007", "'010' is not a whole number"),
    "no threads": (instance("loader-thread: -1"), "US-1007", "'-1' is not a whole number of at least 0"),
    "port": (
        MINIMAL.replace("host: t,", "host: t, port: 65536,"),
        "US-1007",
        "'65536' is not a whole number from 1 to 65535",
    ),
    "text for boolean": (MINIMAL + "case-sensitive: maybe\n", "US-1007", "'maybe' is not true or false"),
    "task-mode": (MINIMAL.replace("all", "everything"), "US-1007", "'everything' is not one of full, incremental, all"),
    "case of a word": (MINIMAL.replace("task-mode: all", "task-mode: ALL"), "US-1007", "'ALL' is not one of"),
    "task name": (MINIMAL.replace("name: shop", "name: ../shop"), "US-1007", "'../shop' is not a task name"),
    "meta-schema of the server": (
        MINIMAL + "meta-schema: mysql\n",
        "US-1007",
        "'mysql' is not a schema that unshard may write to",
    ),
    "target in the meta-schema": (MINIMAL + "meta-schema: A\n", "US-1007", "it is the meta-schema"),
    "target-table without table-pattern": (
        MINIMAL.replace("table-pattern: t_*, ", ""),
        "US-1007",
        "target-table needs a table-pattern",
    ),
    "timezone": (MINIMAL + "timezone: Mars/Base\n", "US-1007", "'Mars/Base' is not a time zone"),
    "folder of time zones": (MINIMAL + "timezone: Europe\n", "US-1007", "'Europe' is not a time zone"),
    "path as time zone": (MINIMAL + "timezone: ../x\n", "US-1007", "is not a time zone"),
    "offset": (MINIMAL + "timezone: '+14:01'\n", "US-1007", "'+14:01' is not a time zone"),
    "cron": (
        MINIMAL + "unshard: {schedule: '61 * * * *'}\n",
        "US-1007",
        "unshard.schedule: '61 * * * *' is not a cron expression",
    ),
    "duration": (MINIMAL + "unshard: {lock-timeout: soon}\n", "US-1007", "'soon' is not a duration"),
    "no duration": (MINIMAL + "unshard: {lock-timeout: 0s}\n", "US-1007", "'0s' is not a duration above zero"),
    "size": (MINIMAL + "unshard: {window-size: 64M}\n", "US-1007", "'64M' is not a size"),
    "no size": (MINIMAL + "unshard: {window-size: 0}\n", "US-1007", "'0' is not a size above zero"),
    "scheme": (MINIMAL + "unshard: {storage-path: 'ftp://x/y'}\n", "US-1007", "the value' is not a path"),
    "key in a URI": (MINIMAL + "unshard: {storage-path: 's3://k:s3cr3t@b/y'}\n", "US-1007", "is not a path, or a URI"),
    "options in a URI": (MINIMAL + "unshard: {storage-path: 's3://b/y?secret_key=s3cr3t'}\n", "US-1007", "URI"),
    "empty folder in a bucket": (MINIMAL + "unshard: {storage-path: 's3://b//y'}\n", "US-1007", "is not a path"),
    "hdfs": (MINIMAL + "unshard: {storage-path: 'hdfs://n:8020/x'}\n", "US-6013", "webhdfs://host:port/folder"),
    "HDFS without a port": (MINIMAL + "unshard: {storage-path: 'webhdfs://n/x'}\n", "US-1007", "is not a path"),
    "password in a URI": (MINIMAL + "unshard: {storage-path: 'webhdfs://u:pw@n:9870/x'}\n", "US-1007", "URI"),
    "host of a file URI": (MINIMAL + "unshard: {storage-path: 'file://nas/y'}\n", "US-1007", "is not a path, or a URI"),
    "spark": (MINIMAL + "unshard: {spark-connection: 'local [2]'}\n", "US-1007", "is not a Spark master"),
    "no instance": (HEAD + "mysql-instances: []\n", "US-1007", "is not a list with at least one instance"),
    "binlog name": (instance("meta: {binlog-name: first}"), "US-1007", "'first' is not a binlog file name"),
    "GTIDs": (instance("meta: {binlog-gtid: 'mysql-bin.000001'}"), "US-1007", "'mysql-bin.000001' is not GTIDs like"),
    "GTIDs of two makes": (
        instance("meta: {binlog-gtid: '0-1-5,3e11fa47-71ca-11e1-9e33-c80aa9429562:1'}"),
        "US-1007",
        "is not GTIDs like",
    ),
    "session variable": (
        MINIMAL.replace("host: t,", "host: t, session: {'a;b': 1},"),
        "US-1007",
        "is not the name of a session variable",
    ),
    "session time zone": (
        MINIMAL.replace("host: t,", "host: t, session: {time_zone: x},"),
        "US-1007",
        "target-database.session: 'x' is not a time zone",
    ),
    **{
        f"session {name}": (
            MINIMAL.replace("host: t,", f"host: t, session: {{{name}: 1}},"),
            "US-1007",
            f"'{name}' is not a variable that you can set here",
        )
        for name in ("Character_Set_Client", "character_set_results", "sql_select_limit")
    },
    "name that no server takes": (
        MINIMAL.replace("target-schema: a", "target-schema: a😀"),
        "US-1007",
        "characters of at most three bytes",
    ),
    "condition of two": (instance("mydumper: {where: id > 1) OR (TRUE}"), "US-1007", "mydumper.where"),
    "condition with a query": (
        instance("mydumper: {where: id IN (SELECT 1)}"),
        "US-1007",
        "without queries and comments",
    ),
    "condition with a comment": (
        instance("mydumper: {extra-args: --where 'id > 1 -- '}"),
        "US-1007",
        "without queries and comments",
    ),
    "open quote": (instance('mydumper: {extra-args: "--consistency \'a"}'), "US-1007", "closed quotes"),
    "missing name": (MINIMAL.replace("name: shop\n", ""), "US-1008", "shop.yaml:1: key 'name' is missing"),
    "missing mode": (MINIMAL.replace("task-mode: all\n", "task-mode:\n"), "US-1008", "key 'task-mode' is missing"),
    "missing target": (INSTANCE + ROUTES + "name: x\ntask-mode: all\n", "US-1008", "key 'target-database' is missing"),
    "missing host": (MINIMAL.replace("host: t, ", ""), "US-1008", "target-database: key 'host' is missing"),
    "missing pattern": (
        MINIMAL.replace("schema-pattern: a_*, ", ""),
        "US-1008",
        "routes.r: key 'schema-pattern' is missing",
    ),
    "unused block": (
        MINIMAL + "loaders: {global: {}}\n",
        "US-1010",
        "shop.yaml:6 loaders.global: nothing refers to 'global' (name it in loader-config-name",
    ),
    "unused route": (
        MINIMAL.replace(", route-rules: [r]", ""),
        "US-1010",
        "nothing refers to 'r' (name it in route-rules",
    ),
    "unknown block": (
        instance("loader-config-name: nowhere"),
        "US-1011",
        "loader-config-name: 'nowhere' is not defined in loaders (defined there: nothing)",
    ),
    "unknown route": (MINIMAL.replace("[r]", "[r, q]"), "US-1011", "'q' is not defined in routes (defined there: r)"),
    "unknown list": (instance("block-allow-list: l"), "US-1011", "'l' is not defined in block-allow-list"),
    "rule twice": (MINIMAL.replace("[r]", "[r, r]"), "US-1012", "route-rules: rule 'r' is named twice"),
    "name and block": (
        instance("loader-config-name: g, loader: {}") + "loaders: {g: {}}\n",
        "US-1013",
        "'loader-config-name' and 'loader' exclude each other",
    ),
    "two policies": (
        instance("loader: {on-duplicate: error, on-duplicate-logical: replace}"),
        "US-1013",
        "'on-duplicate' and 'on-duplicate-logical'",
    ),
    "two consistencies": (
        instance("mydumper: {consistency: auto, extra-args: '--consistency none'}"),
        "US-1013",
        "'consistency' and 'extra-args'",
    ),
    "two conditions": (
        instance("mydumper: {where: id > 1, extra-args: --where id>2}"),
        "US-1013",
        "'where' and 'extra-args'",
    ),
    "two secrets": (
        MINIMAL.replace("password-env: P", "password-env: P, conn-id: c"),
        "US-1013",
        "'conn-id' and 'password-env'",
    ),
    "source twice": (MINIMAL.replace("[r]}]", "[r]}, {source-id: s1}]"), "US-1014", "source 's1' is already in"),
    "source unknown": (MINIMAL.replace("s1", "s9"), "US-1015", "no source file has source-id 's9'; read: "),
    "source id": (MINIMAL.replace("s1", "a/b"), "US-1007", "'a/b' is not a source id"),
    "long source id": (MINIMAL.replace("s1", "s" * 33), "US-1007", "is not a source id: 1 to 32"),
    "pattern": (
        MINIMAL.replace("t_*", "'t_[0-63]'"),
        "US-1020",
        "shop.yaml:5 routes.r: pattern 't_[0-63]': [0-63] matches one character",
    ),
    "regular expression": (MINIMAL.replace("t_*", "'~t_('"), "US-1020", "routes.r: pattern '~t_('"),
    **{
        f"column mapping {number}": (
            instance("column-mapping-rules: [c]")
            + "column-mappings: {c: {schema-pattern: '*', table-pattern: '*', target-column: id, "
            + rest
            + "}}\n",
            "US-1007",
            words,
        )
        for number, (rest, words) in enumerate(
            [
                ("expression: partition, arguments: []", "'partition' is not one of"),
                ("expression: partition id, arguments: ['1', s]", "[1, s]' is not three texts or four"),
                ("expression: partition id, arguments: ['16', s, t]", "'16' is not an instance from 0 to 15"),
                ("expression: partition id, arguments: ['-1', s, t]", "'-1' is not an instance"),
                ("expression: add prefix, arguments: []", "'[]' is not one text for 'add prefix'"),
                ("expression: add suffix, arguments: [a, b]", "'[a, b]' is not one text for 'add suffix'"),
            ]
        )
    },
    "column mapping of nobody": (
        MINIMAL + "column-mappings: {c: {schema-pattern: a, target-column: b, expression: add prefix, arguments: [x]}}",
        "US-1010",
        "column-mapping-rules",
    ),
    **{
        f"event filter {number}": (
            instance("filter-rules: [f]") + "filters: {f: {schema-pattern: '*', " + rest + "}}\n",
            code,
            words,
        )
        for number, (rest, code, words) in enumerate(
            [
                ("events: [drop colum], action: Ignore", "US-1007", "the name of a change, like 'drop column'"),
                ("events: [insert], action: ignore", "US-1007", "'ignore' is not one of Do, Ignore, Error"),
                ("events: [insert]", "US-1008", "'action'"),
                ("action: Do", "US-1008", "the rule matches nothing"),
                ("sql-pattern: ['('], action: Do", "US-1020", "filters.f.sql-pattern"),
            ]
        )
    },
    **{
        f"expression filter {number}": (
            instance("expression-filters: [e]") + "expression-filter: {e: {schema: a, table: b" + rest + "}}\n",
            code,
            words,
        )
        for number, (rest, code, words) in enumerate(
            [
                ("", "US-1008", "drops nothing"),
                (", insert-value-expr: a = 1, delete-value-expr: b", "US-1013", "insert-value-expr"),
                (", insert-value-expr: 'a) OR (b'", "US-1007", "one SQL expression"),
                (", insert-value-expr: '(a'", "US-1007", "parentheses are closed"),
                (", insert-value-expr: 'a = 1; b'", "US-1007", "one SQL expression"),
                (", insert-value-expr: 'a IN (SELECT 1)'", "US-1007", "without queries"),
                (', insert-value-expr: "a = \'x"', "US-1007", "quotes are closed"),
            ]
        )
    },
    "event filter of nobody": (
        MINIMAL + "filters: {f: {schema-pattern: a, events: [insert], action: Do}}",
        "US-1010",
        "filter-rules",
    ),
    "column mapping unknown": (instance("column-mapping-rules: [c]"), "US-1011", "column-mappings"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_code_place_and_words(case: str, write: Write) -> None:
    text, code, words = REFUSED[case]
    message = refusal(write(text))
    assert message.startswith(f"[{code}] ")
    assert words in message
    if code not in ("US-1020",):
        assert str(write(text)) in message, "the file is named"


LATER = {
    "physical import": instance("loader: {import-mode: physical}"),
    "import into": instance("loader: {import-mode: import-into}"),
    "dumpling's options": instance("mydumper: {extra-args: --compress gzip}"),
}


def test_optimistic_mode(write: Write) -> None:
    task = load_task(write(MINIMAL + "shard-mode: optimistic\nunshard: {contract-delay: 2h}\n"))
    assert (task.shard_mode, task.options.contract_delay) == (ShardMode.OPTIMISTIC, timedelta(hours=2))
    assert not task.options.is_strict and not task.warnings
    text = MINIMAL + "shard-mode: optimistic\nstrict-optimistic-shard-mode: true\n"
    assert load_task(write(text)).options.is_strict
    idle = load_task(write(MINIMAL + "strict-optimistic-shard-mode: true\n"))
    assert not idle.options.is_strict and "shard-mode is not optimistic" in idle.warnings[0]
    assert not load_task(write(MINIMAL + "strict-optimistic-shard-mode: false\n")).warnings


def test_online_ddl(write: Write) -> None:
    real, shadow = TableId("d", "t"), TableId("d", "_t_gho")
    (found,) = load_task(write(MINIMAL)).instances
    assert found.online and found.online.shadow.real(shadow, {real}) == real and not found.online.shadow.are_own
    (found,) = load_task(write(MINIMAL + "online-ddl: false\n")).instances
    assert found.online is None
    for key in ("online-ddl: true", "online-ddl-scheme: gh-ost", "online-ddl: false\nonline-ddl-scheme: pt"):
        (found,) = load_task(write(MINIMAL + key + "\nshadow-table-rules: []\n")).instances
        assert found.online and found.online.shadow.are_own and found.online.trash.are_own, "DM's rules, by name alone"
        assert found.online.shadow.real(shadow, {real}) == real
        assert found.online.trash.real(TableId("d", "_t_old"), {real}) == real
    task = load_task(write(MINIMAL + "shadow-table-rules: ['(.*)_shadow']\nonline-ddl-scheme: pt\n"))
    (rules,) = (instance.online for instance in task.instances)
    assert rules and rules.shadow.are_own and rules.trash.are_own
    assert [rules.shadow.real(each, {real}) for each in (shadow, TableId("d", "t_shadow"))] == [None, real]
    task = load_task(write(MINIMAL + "online-ddl: false\ntrash-table-rules: ['(.*)_x']\n"))
    assert any("'trash-table-rules' has no effect here: online-ddl is off" in note for note in task.warnings)


@pytest.mark.parametrize("rule", ["_gho$", "^_(.+)_(gho|new)$", "("])
def test_rules_of_online_ddl_have_one_group(rule: str, write: Write) -> None:
    message = refusal(write(MINIMAL + f"shadow-table-rules: ['{rule}']\n"))
    assert message.startswith("[US-1006] ") or "a regular expression" in message


@pytest.mark.parametrize("case", LATER)
def test_what_a_later_version_brings_is_refused_and_says_so(case: str, write: Write) -> None:
    message = refusal(write(LATER[case]))
    assert message.startswith("[US-1009] ")
    assert "which this version of unshard does not have yet" in message


@pytest.mark.parametrize(
    "keys",
    [
        "where: \" id > 'a;' \"",
        'extra-args: "--where \\"id > \'a;\'\\""',
        'extra-args: "--consistency none --where=\\"id > \'a;\'\\""',
        'where: "id > \'a;\'", extra-args: "--where \\"id > \'a;\' \\""',
    ],
)
def test_the_condition_of_a_dump(keys: str, write: Write) -> None:
    (found,) = load_task(write(instance(f"mydumper: {{{keys}}}"))).instances
    assert found.dump.where == "id > 'a;'"
    key = "where" if keys.startswith("where") and "extra" not in keys else "extra-args"
    assert found.dump.where_place.endswith(f" mysql-instances[0].mydumper.{key}")


def test_a_condition_means_nothing_where_nothing_is_dumped(write: Write) -> None:
    text = instance("mydumper: {where: id > 1}").replace("task-mode: all", "task-mode: incremental")
    task = load_task(write(text))
    assert task.instances[0].dump.where == ""
    assert any("mydumper.where: 'where' has no effect in task-mode incremental" in each for each in task.warnings)


def test_a_start_by_gtid(write: Write) -> None:
    text = instance("meta: {binlog-gtid: '0-1-2,5-1-7'}").replace("task-mode: all", "task-mode: incremental")
    (found,) = load_task(write(text)).instances
    assert (found.start, found.start_gtid) == (None, "0-1-2,5-1-7")


def test_empty_texts_are_no_keys(write: Write) -> None:
    empty = instance("loader: {on-duplicate: ''}, block-allow-list: '', black-white-list: '', meta: ")
    text = empty + "timezone: ''\nmeta-schema: ''\nshard-mode: ''\nonline-ddl-scheme: ''\nunshard: {schedule: ''}\n"
    plain, task = load_task(write(MINIMAL)), load_task(write(text))
    assert task == plain


def test_targets_that_differ_in_case_only_are_refused(write: Write) -> None:
    text = MINIMAL.replace("[r]", "[r, q]").replace(
        "routes: {", "routes: {q: {schema-pattern: b, table-pattern: b, target-schema: A, target-table: x}, "
    )
    message = refusal(write(text))
    assert message.startswith("[US-1007] ") and "'a' is not spelt as in route 'q', which has 'A'" in message


def test_ambiguous_routes_are_named_when_a_table_is_looked_up(write: Write) -> None:
    text = MINIMAL.replace("[r]", "[r, q]").replace(
        "routes: {", "routes: {q: {schema-pattern: '*', table-pattern: '*', target-schema: b}, "
    )
    with pytest.raises(RouteAmbiguous, match=r"a_1\.t_1 matches route 'r' to a\.t and route 'q' to b\.t_1"):
        load_task(write(text)).instances[0].routing.target_of(TableId("a_1", "t_1"))


def extracting(text: str) -> str:
    return MINIMAL.replace("target-schema: a,", f"target-schema: a, {text},")


def test_extractors_are_read_and_know_their_source(write: Write) -> None:
    text = extracting(
        "extract-table: {table-regexp: 't_(.*)', target-column: c_table},"
        " extract-source: {source-regexp: '([a-z])(\\d)', target-column: c_source}"
    )
    (part,) = load_task(write(text)).instances
    found = part.routing.reshaping(TableId("a_1", "T_Seven")).extracted
    assert found == (Extracted("c_table", "Seven"), Extracted("c_source", "s1"))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("extract-table: {table-regexp: 't_.*', target-column: c}", "US-1020", "extract-table.table-regexp: pattern"),
        ("extract-table: {table-regexp: 't_(', target-column: c}", "US-1020", "unterminated"),
        ("extract-table: {table-regexp: 't_(.*)'}", "US-1008", "target-column"),
        ("extract-table: {schema-regexp: 't_(.*)', target-column: c}", "US-1001", "table-regexp"),
        (
            "extract-table: {table-regexp: '(.*)', target-column: c}, extract-schema: {schema-regexp: '(.*)',"
            " target-column: C}",
            "US-1007",
            "'C' is not a column that no other extractor uses",
        ),
    ],
)
def test_extractors_that_cannot_be_meant_are_refused(write: Write, text: str, code: str, words: str) -> None:
    message = refusal(write(extracting(text)))
    assert f"[{code}] " in message and words in message


def test_allow_list_names_the_place_of_a_bad_pattern(write: Write) -> None:
    text = (
        instance("block-allow-list: l")
        + "block-allow-list:\n  l:\n    do-tables:\n    - {db-name: a, tbl-name: '~('}\n"
    )
    with pytest.raises(PatternInvalid, match=r"block-allow-list\.l\.do-tables: pattern '~\('"):
        load_task(write(text))


@pytest.mark.parametrize(
    ("task", "source", "sensitive"),
    [("", "", False), ("case-sensitive: true\n", "", True), ("", "case-sensitive: true\n", True)],
)
def test_case_sensitivity_of_task_or_source(write: Write, task: str, source: str, sensitive: bool) -> None:
    routing = load_task(write(MINIMAL + task, s1=SOURCE.format(id="s1") + source)).instances[0].routing
    assert (routing.target_of(TableId("A_1", "T_1")) == TableId("A_1", "T_1")) is sensitive


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("90s", 90), ("90", 90), ("1h30m", 5400), ("5m0s", 300), ("0.5h", 1800), ("1d", 86400)],
)
def test_durations(write: Write, text: str, seconds: int) -> None:
    task = load_task(write(f"{MINIMAL}unshard: {{lock-timeout: {text}}}\n"))
    assert task.options.lock_timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 2**26), ("1 GiB", 2**30), ("1.5KiB", 1536), ("2MB", 2_000_000), ("4096", 4096), ("7B", 7)],
)
def test_sizes(write: Write, text: str, size: int) -> None:
    assert load_task(write(f"{MINIMAL}unshard: {{window-size: {text}}}\n")).options.window.bytes == size


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "UTC", "+08:00", "+10:00", "-13:59", "'+14:00'", "+0:00"])
def test_time_zones_are_the_text_that_stands_there(write: Write, zone: str) -> None:
    """YAML would make a number of +10:00."""
    assert load_task(write(f"{MINIMAL}timezone: {zone}\n")).timezone == zone.strip("'")


@pytest.mark.parametrize("cron", ["*/5 * * * *", "0 3 * * mon-fri", "0,30 8-18/2 1 JAN,JUL 7", "@hourly"])
def test_cron_expressions(write: Write, cron: str) -> None:
    assert load_task(write(f'{MINIMAL}unshard: {{schedule: "{cron}"}}\n')).options.schedule == cron


@pytest.mark.parametrize(
    "cron",
    [
        "1, * * * *",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* * 0 * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "* * * * mon-sat-sun",
        "a * * * *",
        "@often",
        "1-* * * * *",
    ],
)
def test_cron_expressions_that_are_none(write: Write, cron: str) -> None:
    assert refusal(write(f'{MINIMAL}unshard: {{schedule: "{cron}"}}\n')).startswith("[US-1007] ")


@pytest.mark.parametrize(
    ("path", "storage"),
    [
        ("data", "{folder}/data/shop"),
        ("../data/", "{parent}/data/shop"),
        ("/mnt/x", "/mnt/x/shop"),
        ("file:///mnt/x", "/mnt/x/shop"),
        ("s3://bucket/x/", "s3://bucket/x/shop"),
        ("s3://bucket", "s3://bucket/shop"),
        ("webhdfs://u@n:9870/x/", "webhdfs://u@n:9870/x/shop"),
    ],
)
def test_storage_path(write: Write, path: str, storage: str) -> None:
    file = write(f"{MINIMAL}unshard: {{storage-path: '{path}'}}\n")
    wanted = storage.format(folder=file.parent, parent=file.parent.parent)
    assert load_task(file).storage == wanted


def test_storage_path_does_not_depend_on_the_working_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write()
    monkeypatch.chdir(file.parent)
    assert load_task(Path("shop.yaml")).storage == load_task(file).storage
    assert load_task(Path("shop.yaml")).path == file


def test_merge_keys_and_aliases_of_yaml(write: Write) -> None:
    text = (
        HEAD
        + ROUTES
        + (
            "mysql-instances:\n- &one {source-id: s1, route-rules: [r], loader-thread: 3}\n"
            "- {<<: *one, source-id: s2}\n"
        )
    )
    assert [(i.source.id, i.load.threads) for i in load_task(write(text)).instances] == [("s1", 3), ("s2", 3)]


def test_bulk_connection_is_its_own(write: Write) -> None:
    options = load_task(
        write(MINIMAL + "unshard: {spark-connection: 'sc://h:15002', bulk-connection: spark_bulk}\n")
    ).options
    assert (options.spark_connection, options.bulk_connection) == ("sc://h:15002", "spark_bulk")


def test_missing_files(write: Write, tmp_path: Path) -> None:
    assert "[US-1002]" in refusal(tmp_path / "none.yaml") and "no such file" in refusal(tmp_path / "none.yaml")
    assert "is a directory" in refusal(tmp_path)
    path = write()
    path.write_bytes(b"name: \xff\xfe\n")
    assert "byte 6 is not UTF-8" in refusal(path)


def test_file_with_byte_order_mark(write: Write) -> None:
    path = write()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_task(path).name == "shop"


def test_deep_nesting_is_refused(write: Write) -> None:
    assert refusal(write("name: " + "[" * 20000)).startswith("[US-1003] ")


def test_import_is_light() -> None:
    """A DAG file loads its task at every parse."""
    code = (
        "import sys; from pathlib import Path; from unshard.config import load_task\n"
        "path = Path('include/tasks/orders_merge.yaml'); load_task(path)\n"
        "heavy = {'airflow', 'pyarrow', 'numpy', 'pyspark', 'pymysql', 'sqlalchemy', 'sqlglot'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": "include"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"


def test_reference_page_is_in_step() -> None:
    page = (ROOT / "docs/config.md").read_text()
    assert page == configpage.config_page(page), "write it again: python -m unshard.config.configpage docs/config.md"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("include/**/tasks/*.yaml")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_task_file_of_the_repository_is_read(path: Path) -> None:
    assert load_task(path).warnings == ()


def test_example_is_read_without_a_warning() -> None:
    task = load_task(ROOT / "include/tasks/orders_merge.yaml")
    assert (task.sources, task.warnings) == (("shop-1", "shop-2"), ())
    assert {i.source.endpoint.conn_id for i in task.instances} | {task.target.conn_id} == {"shop_1", "shop_2", "target"}
    for instance in task.instances:
        assert instance.routing.target_of(TableId("shop_b", "orders_2")) == TableId("shop", "orders")
        assert instance.routing.target_of(TableId("shop_b", "customers")) is None


@pytest.mark.parametrize(
    ("zone", "text", "utc"),
    [
        ("+00:00", "2026-01-31 23:59:59", "2026-01-31T23:59:59"),
        ("Asia/Shanghai", "2026-01-31T23:59:59", "2026-01-31T15:59:59"),
        ("-03:30", "2026-01-31", "2026-01-31T03:30:00"),
        ("Asia/Shanghai", "2026-01-31T23:59:59+01:00", "2026-01-31T22:59:59"),
    ],
)
def test_start_time_is_in_the_zone_of_the_task(write: Write, zone: str, text: str, utc: str) -> None:
    task = load_task(write(f"timezone: '{zone}'\n{MINIMAL.replace('all', 'incremental')}"))
    (instance, *_) = starting_at(task, text).instances
    assert instance.start_time and instance.start_time.astimezone(UTC).isoformat() == f"{utc}+00:00"


def test_start_time_is_refused_where_it_means_nothing(write: Write) -> None:
    with pytest.raises(StartNotNew, match="task-mode is all"):
        starting_at(load_task(write(MINIMAL)), "2026-01-31")
    with pytest.raises(BadValue, match="yesterday"):
        starting_at(load_task(write(MINIMAL.replace("all", "incremental"))), "yesterday")


@pytest.mark.parametrize(("moment", "file"), [(10, None), (11, "a"), (20, "a"), (21, "b"), (30, "b"), (99, "c")])
def test_file_of_a_time_is_found_by_halving(moment: float, file: str | None) -> None:
    asked: list[str] = []

    def created(name: str) -> int:
        asked.append(name)
        return {"a": 10, "b": 20, "c": 30}[name]

    assert last_before("abc", created, moment) == file
    assert len(asked) <= 2 and last_before("", created, moment) is None


def test_old_switch_is_warned_of_with_the_new_one(write: Write) -> None:
    (warning,) = load_task(write("is-sharding: true\n" + MINIMAL)).warnings
    assert "'shard-mode: pessimistic'" in warning
    assert load_task(write("is-sharding: true\nshard-mode: pessimistic\n" + MINIMAL)).warnings == ()


def test_the_largest_port_is_accepted(write: Write) -> None:
    assert load_task(write(MINIMAL.replace("host: t,", "host: t, port: 65535,"))).target.port == 65535
