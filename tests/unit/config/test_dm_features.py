"""Every feature of the task and source files in DM's tests, templates and manual: what is read, and what is said of it.

Each row has the keys of one feature, in a small file of our own. The files that DM rejects, and those that ask for what
unshard does not have, are in `REJECTED`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from unshard.config import Task, load_task
from unshard.errors import UnshardError

SOURCES = ("mysql-replica-01", "mysql-replica-02")
SERVER = {"host": "192.0.2.11", "user": "root", "port": 3306}
Load = Callable[..., Task]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a task beside the files of its two sources, the first of which may have more keys."""

    def load(body: dict[str, Any], **keys: object) -> Task:
        (tmp_path / "sources").mkdir(exist_ok=True)
        for name, more in ((SOURCES[0], keys), (SOURCES[1], {})):
            source = {"source-id": name, "from": SERVER} | more
            (tmp_path / "sources" / f"{name}.yaml").write_text(yaml.safe_dump(source))
        (tmp_path / "task.yaml").write_text(yaml.safe_dump(body))
        return load_task(tmp_path / "task.yaml")

    return load


def plain(**changed: object) -> dict[str, Any]:
    """Return a task of two instances, and with it the blocks that the changes replace."""
    return {
        "name": "shop",
        "task-mode": "all",
        "target-database": {"host": "192.0.2.1", "port": 4000, "user": "root", "password": ""},
        "mysql-instances": [{"source-id": SOURCES[0]}, {"source-id": SOURCES[1]}],
    } | {key.replace("_", "-"): value for key, value in changed.items()}


def instances(**keys: object) -> list[dict[str, object]]:
    first = {"source-id": SOURCES[0]} | {key.replace("_", "-"): value for key, value in keys.items()}
    return [first, {"source-id": SOURCES[1]}]


def target(**keys: object) -> dict[str, object]:
    return {"host": "192.0.2.1", "port": 4000, "user": "root"} | keys


def merging(**keys: object) -> dict[str, Any]:
    """Return the route of a table and that of its schema, as the tests of DM have them."""
    schema = {"schema-pattern": "shop_*", "target-schema": "shop"}
    return {
        "routes": {"table": {**schema, "table-pattern": "t*", "target-table": "t", **keys}, "schema": schema},
        "mysql_instances": instances(route_rules=["table", "schema"]),
    }


def dropping(action: str, *events: str, **keys: object) -> dict[str, Any]:
    rule = {"schema-pattern": "*", "table-pattern": "*", "events": list(events), "action": action}
    changed = {key.replace("_", "-"): value for key, value in keys.items()}
    return {"filters": {"f": rule | changed}, "mysql_instances": instances(filter_rules=["f"])}


def listed(**keys: object) -> dict[str, Any]:
    rules = {key.replace("_", "-"): value for key, value in keys.items()}
    return {"block_allow_list": {"a": rules}, "mysql_instances": instances(block_allow_list="a")}


def settings(unit: str, **keys: object) -> dict[str, Any]:
    block = {key.replace("_", "-"): value for key, value in keys.items()}
    return {f"{unit}s": {"global": block}, "mysql_instances": instances(**{f"{unit}_config_name": "global"})}


def filtering(**expressions: str) -> dict[str, Any]:
    rule = {"schema": "shop_1", "table": "t"} | {f"{k.replace('_', '-')}-expr": v for k, v in expressions.items()}
    return {"expression_filter": {"e": rule}, "mysql_instances": instances(expression_filters=["e"])}


NAMES_OF_2021 = """
drop database, drop table, drop index, rename table, truncate table, drop table partition, value range decrease,
truncate table partition, precision decrease, modify column, rename column, rename index, drop column, drop primary
key, drop unique key, modify default value, modify constaints, modify columns order, modify charset, modify
collation, remove auto increment, modify storage engine, reorganize table partition, coalesce table partition, split
table partition, exchange table partition, rebuild table partition, truncate table partition
"""
REGEX = {"db-name": "~^shop_[\\d]+", "tbl-name": "~^_?t_((pt)|(gho)).*$"}
EXPORT = {"enable_heartbeat": False, "ansi_quotes": False, "remove_meta": False}
MAPPING = {"schema-pattern": "shop_*", "table-pattern": "t*", "source-column": "id", "target-column": "id"}
GTIDS = "03fc0263-28c7-11e7-a653-6c0b84d59f30:1-70,05474d3c-28c7-11e7-8352-203db246dd3d:1-17"
TLS_FILES = {"ssl-ca": "ca.pem", "ssl-cert": "c.pem", "ssl-key": "k.pem"}
NO_TLS = {"ssl-ca": "", "ssl-key": "", "cert-allowed-cn": [], "ssl-ca-bytes": [], "ssl-cert-base64": ""}

ACCEPTED: dict[str, tuple[dict[str, Any], str]] = {
    "neither lists nor blocks": (plain(), ""),
    "optimistic mode": (plain(shard_mode="optimistic"), ""),
    "strict optimistic mode": (plain(shard_mode="optimistic", strict_optimistic_shard_mode=True), ""),
    "host of IPv6": (plain(target_database=target(host="::1")), ""),
    "no password": (plain(target_database=target()), ""),
    "plain password": (plain(target_database=target(password=123456)), "use conn-id or password-env"),
    "variables of TiDB": (
        plain(target_database=target(session={"tidb_retry_limit": "10", "tidb_disable_txn_auto_retry": "off"})),
        "",
    ),
    "sql_mode": (
        plain(target_database=target(session={"sql_mode": "ANSI_QUOTES"})),
        "'sql_mode' has no effect here",
    ),
    "foreign keys in the session": (plain(target_database=target(session={"foreign_key_checks": 1})), ""),
    "packet size": (plain(target_database=target(**{"max-allowed-packet": 67108864})), "'max-allowed-packet' has no"),
    "TLS files": (plain(target_database=target(security=TLS_FILES)), ""),
    "TLS authority": (plain(target_database=target(security={"ssl-ca": "ca.pem"})), ""),
    "TLS of empty values": (plain(target_database=target(security=NO_TLS)), ""),
    "TLS files and their bytes": (
        plain(target_database=target(security={**TLS_FILES, "ssl-ca-bytes": [45, 45]})),
        "'ssl-ca-bytes' has no effect here: the key ssl-ca takes precedence",
    ),
    "time zone as offset": (plain(timezone="+04:00"), ""),
    "time zone as name": (plain(timezone="Asia/Shanghai"), ""),
    "case-sensitive": (plain(case_sensitive=True), ""),
    "no sharding": (plain(is_sharding=False), "unshard always coordinates"),
    "no sharding and no mode": (plain(is_sharding=False, shard_mode=""), "unshard always coordinates"),
    "sharding": (plain(is_sharding=True), "the old way to say 'shard-mode: pessimistic'"),
    "sharding and its mode": (plain(is_sharding=True, shard_mode="pessimistic"), ""),
    "exported mode": (
        plain(is_sharding=False, shard_mode="pessimistic", **EXPORT),
        "'is-sharding' has no effect here: the key shard-mode takes precedence",
    ),
    "heartbeat": (plain(enable_heartbeat=True, heartbeat_update_interval=2), "'enable-heartbeat' has no effect here"),
    "heartbeat of no interest": (plain(heartbeat_update_interval=1, heartbeat_report_interval=10), ""),
    "remove-meta": (plain(remove_meta=True), "`unshard run --remove-meta`"),
    "kept dump": (plain(clean_dump_file=False), ""),
    "collations": (plain() | {"collation_compatible": "strict"}, ""),
    "checkpoints": (plain(experimental={"async-checkpoint-flush": True}), "'experimental' has no effect here"),
    "Lightning": (plain(tidb={"backend": "tidb"}), ""),
    "Lightning's servers": (plain(tidb={"backend": "", "pd-addr": "pd:2379"}), "'pd-addr' has no effect here"),
    **{
        f"ignored check {item}": (plain(ignore_checking_items=[item]), "")
        for item in ("all", "version", "table_schema", "auto_increment_ID")
    },
    "online DDL": (plain(online_ddl=True), ""),
    "online DDL of one tool": (plain(online_ddl_scheme="gh-ost"), ""),
    "full": (plain(task_mode="full"), ""),
    "start by name": (
        plain(task_mode="incremental", mysql_instances=instances(meta={"binlog-name": "b.000001", "binlog-pos": 4})),
        "",
    ),
    "start by GTID": (plain(task_mode="incremental", mysql_instances=instances(meta={"binlog-gtid": GTIDS})), ""),
    "start by both": (
        plain(
            task_mode="incremental",
            mysql_instances=instances(meta={"binlog-name": "b.000001", "binlog-pos": 154, "binlog-gtid": GTIDS}),
        ),
        "'binlog-gtid' has no effect here",
    ),
    "start without a place": (
        plain(task_mode="incremental", mysql_instances=instances(meta={"binlog-gtid": ""})),
        "",
    ),
    "start of another mode": (
        plain(mysql_instances=instances(meta={"binlog-name": "b.000001", "binlog-pos": 4})),
        "'meta' has no effect in task-mode all",
    ),
    "list of schemas": (plain(**listed(do_dbs=["shop*", "~^test.*"], ignore_dbs=["mysql"])), ""),
    "list of tables": (plain(**listed(do_tables=[REGEX], ignore_tables=[{"db-name": "shop", "tbl-name": "l"}])), ""),
    "list by its old names": (
        plain(black_white_list={"a": {"do-dbs": ["d"]}}, mysql_instances=instances(black_white_list="a")),
        "'black-white-list' is the old name",
    ),
    "list by the new and the old name": (
        plain(black_white_list={"a": {"do-dbs": ["d"]}}, mysql_instances=instances(block_allow_list="a")),
        "'black-white-list' is the old name",
    ),
    "lists of both names": (
        plain(**listed(do_dbs=["d"]), black_white_list={"b": {"do-dbs": ["e"]}}),
        "'black-white-list' has no effect here: the key block-allow-list takes precedence",
    ),
    "names of two lists": (
        plain(block_allow_list={"a": {}}, mysql_instances=instances(block_allow_list="a", black_white_list="b")),
        "'black-white-list' has no effect here: the key block-allow-list takes precedence",
    ),
    "list of nobody": (plain(block_allow_list={"a": {"do-dbs": ["d"]}}), "'a' has no effect: name it in block-allow-"),
    "routes": (plain(**merging()), ""),
    "routes of regular expressions": (plain(**merging(**{"table-pattern": "~tbl.*[cat|dog]+"})), ""),
    "extractors": (
        plain(
            **merging(
                **{
                    "extract-table": {"table-regexp": "t(.*)", "target-column": "c_table"},
                    "extract-schema": {"schema-regexp": "(.*)", "target-column": "c_schema"},
                    "extract-source": {"source-regexp": "mysql-(.*)-([0-9]+)", "target-column": "c_source"},
                }
            )
        ),
        "",
    ),
    "filter of statements": (plain(**dropping("Ignore", "truncate table", "drop table")), ""),
    "filter of rows": (plain(**dropping("Ignore", "delete")), ""),
    "filter of everything": (plain(**dropping("Do", "all")), ""),
    "filter of text": (plain(**dropping("Ignore", sql_pattern=["alter table .* add column `aaa` int"])), ""),
    "filter of both": (plain(**dropping("Ignore", "create index", sql_pattern=["ALTER\\s.*TABLE[\\s\\S]*ADD"])), ""),
    "errors by group": (plain(**dropping("Error", "incompatible ddl changes")), ""),
    "errors by names": (
        plain(**dropping("Error", *(" ".join(name.split()) for name in NAMES_OF_2021.split(",")))),
        "'split table partition' has no effect here",
    ),
    "expression of inserts": (plain(**filtering(insert_value="name != 'Müller'")), ""),
    "expression of updates": (plain(**filtering(update_old_value="c = 1", update_new_value="c = 2")), ""),
    "expression of deletes": (plain(**filtering(delete_value="id = 30")), ""),
    **{
        f"expression {text}": (plain(**filtering(insert_value=text)), "")
        for text in (
            "a*a + b*b = c*c",
            "ts > NOW()",
            "c IS NOT NULL",
            "c = b'1111'",
            "c = '-838:58:50.1'",
            "c->'$.id' = 2",
        )
    },
    "expression of JSON": (plain(**filtering(insert_value='c->"$.id" = 2')), ""),
    "column mapping": (
        plain(
            column_mappings={"m": {**MAPPING, "expression": "partition id", "arguments": ["1", "shop_", "t"]}},
            mysql_instances=instances(column_mapping_rules=["m"]),
        ),
        "",
    ),
    "empty settings": (
        plain(
            mydumpers={"global": None},
            loaders={"global": None},
            syncers={"global": None},
            mysql_instances=instances(
                mydumper_config_name="global", loader_config_name="global", syncer_config_name="global"
            ),
        ),
        "",
    ),
    "dump": (
        plain(**settings("mydumper", threads=4, chunk_filesize=64, skip_tz_utc=True, extra_args="")),
        "chunk-file",
    ),
    "dump of statements": (plain(**settings("mydumper", chunk_filesize=0, statement_size=100)), "'statement-size' has"),
    "options of dumpling": (
        plain(**settings("mydumper", extra_args="--statement-size=4000")),
        "'--statement-size' has no effect here",
    ),
    "options of mydumper": (plain(**settings("mydumper", extra_args="--no-locks")), "'--no-locks' has no effect here"),
    "consistency": (plain(**settings("mydumper", extra_args="--consistency none")), ""),
    "tables of dumpling": (
        plain(**settings("mydumper", extra_args="-B shop -T t1,t2 --consistency none")),
        "'--tables-list' is not applied",
    ),
    **{
        f"import mode {old}": (plain(**settings("loader", import_mode=old)), f"'{old}' is the old name of 'logical'")
        for old in ("sql", "loader")
    },
    "load": (plain(**settings("loader", pool_size=16, import_mode="logical", dir="./dumped_data")), "storage-path"),
    "duplicates": (plain(**settings("loader", on_duplicate_logical="ignore")), ""),
    "physical settings": (
        plain(**settings("loader", on_duplicate_physical="manual", checksum_physical="off")),
        "'on-duplicate-physical' has no effect here",
    ),
    "sync": (plain(**settings("syncer", worker_count=16, batch=100)), "'batch' has no effect here"),
    "sync of merged rows": (plain(**settings("syncer", compact=True, multiple_rows=True)), ""),
    "sync of single rows": (plain(**settings("syncer", compact=False, queue_size=100)), "'compact' has no effect here"),
    "checkpoint interval": (plain(**settings("syncer", checkpoint_flush_interval=1)), "every window commits"),
    "ANSI quotes": (plain(**settings("syncer", enable_ansi_quotes=True)), "'enable-ansi-quotes' has no effect here"),
    "sync by GTID": (plain(**settings("syncer", enable_gtid=True)), "'enable-gtid' has no effect here"),
    "safe mode": (
        plain(**settings("syncer", safe_mode=True, safe_mode_duration="10m")),
        "'safe-mode-duration' has no effect here",
    ),
    "no automatic safe mode": (plain(**settings("syncer", safe_mode_duration="0s")), "'safe-mode-duration' has no"),
    "validator": (plain(**settings("validator", mode="full", meta_flush_interval="1ns")), "'full' is not supported"),
    "validator of nothing": (plain(**settings("validator", mode="none", worker_count=1)), "'worker-count' has no"),
    "threads of an instance": (plain(mysql_instances=instances(mydumper_thread=4, loader_thread=16)), ""),
    "sync threads of an instance": (
        plain(mysql_instances=instances(syncer_thread=16)),
        "'syncer-thread' has no effect",
    ),
    "settings of an instance": (
        plain(mysql_instances=instances(mydumper={"threads": 4}, loader={"pool-size": 8}, syncer={"worker-count": 4})),
        "",
    ),
}
"""Every feature of the task files in DM's tests, templates and manual, and what is said about it."""


@pytest.mark.parametrize("feature", ACCEPTED)
def test_a_feature_of_a_task_file_is_read(load: Load, feature: str) -> None:
    body, words = ACCEPTED[feature]
    found = load(body).warnings
    assert any(words in warning for warning in found) if words else not found, found


REJECTED = {
    "physical import": (plain(**settings("loader", import_mode="physical")), "US-1009"),
    "import into": (plain(**settings("loader", import_mode="import-into")), "US-1009"),
    "physical import of Lightning": (plain(tidb={"backend": "local"}), "US-1009"),
    "switch against mode": (plain(is_sharding=False, shard_mode="pessimistic"), "US-1030"),
    "switch against an empty mode": (plain(is_sharding=True, shard_mode=""), "US-1030"),
    "no task": ({"description": "not a task"}, "US-1001"),
    "placeholder": (
        plain(task_mode="incremental", mysql_instances=instances(meta={"binlog-name": "binlog-name-placeholder-1"})),
        "US-1007",
    ),
    "bytes of a certificate": (plain(target_database=target(security={"ssl-ca-bytes": [45, 45]})), "US-1024"),
    **{
        f"{unit} of nobody": (plain(**{f"{unit}s": {"global": {}}}), "US-1010")
        for unit in ("mydumper", "loader", "syncer", "validator")
    },
    "route of nobody": (plain(routes=merging()["routes"]), "US-1010"),
    "filter of nobody": (plain(filters=dropping("Do", "all")["filters"]), "US-1010"),
    "block and its name": (
        plain(
            **settings("mydumper") | {"mysql_instances": instances(mydumper_config_name="global", mydumper={"rows": 1})}
        ),
        "US-1013",
    ),
}
"""What unshard does not support, and what DM rejects too."""


@pytest.mark.parametrize("feature", REJECTED)
def test_a_feature_of_a_task_file_is_rejected(load: Load, feature: str) -> None:
    body, code = REJECTED[feature]
    with pytest.raises(UnshardError) as caught:
        load(body)
    assert f"[{code}] " in str(caught.value)


SOURCE_KEYS: dict[str, tuple[dict[str, object], str]] = {
    "only a server": ({}, ""),
    "any flavor": ({"flavor": ""}, ""),
    "flavor and server id": ({"flavor": "mysql", "server-id": 123456}, ""),
    "GTID": ({"enable-gtid": True}, "'enable-gtid' has no effect here"),
    "relay": ({"enable-relay": True, "relay-binlog-name": "", "relay-binlog-gtid": ""}, ""),
    "no relay": ({"enable-relay": False}, "'enable-relay' has no effect here"),
    "relay folder": ({"relay-dir": "./relay_log"}, "'relay-dir' has no effect here"),
    "start of the relay": ({"relay-binlog-gtid": GTIDS}, "the relay begins where the task begins"),
    "no checker": ({"checker": {"check-enable": False}}, "'check-enable' has no effect here"),
    "checker": ({"checker": {"backoff-rollback": "5m0s", "backoff-factor": 2}}, "'backoff-factor' has no effect here"),
    "purge": ({"purge": {"interval": 3600, "expires": 0, "remain-space": 15}}, "'remain-space' has no effect here"),
    "filters": (
        {"filters": [{"schema-pattern": "d", "table-pattern": "t", "sql-pattern": ["drop"], "action": "Ignore"}]},
        "",
    ),
    "empty blocks": ({"filters": [], "tracer": {}, "charset": "", "case-sensitive": False, "enable": True}, ""),
    "switch as a letter": ({"case-sensitive": "y"}, ""),
}


@pytest.mark.parametrize("feature", SOURCE_KEYS)
def test_a_feature_of_a_source_file_is_read(load: Load, feature: str) -> None:
    keys, words = SOURCE_KEYS[feature]
    found = load(plain(), **keys).warnings
    assert any(words in warning for warning in found) if words else not found, found
