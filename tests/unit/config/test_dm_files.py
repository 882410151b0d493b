"""Files as DM's manual shows them: what is read, what is warned of, what is refused, and the page about it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from unshard.config import OnDuplicate, ShardMode, Task, load_task
from unshard.config.configpage import BLOCKS
from unshard.config.reading import starting_at
from unshard.config.taskkeys import OPTIONS
from unshard.core.model import Location, TableId
from unshard.errors.config import SeveralErrors, SourceUnknown

ROOT = Path(__file__).parents[3]
FILES = ROOT / "tests/files/dm"
SOURCES = ("mysql-replica-01", "mysql-replica-02")
Write = Callable[[dict[str, Any]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a task file beside DM's source files."""

    def write(body: dict[str, Any]) -> Path:
        shutil.copytree(FILES / "sources", tmp_path / "sources", dirs_exist_ok=True)
        (tmp_path / "task.yaml").write_text(yaml.safe_dump(body))
        return tmp_path / "task.yaml"

    return write


def full() -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((FILES / "full.yaml").read_text())
    return body


def test_the_task_that_the_manual_begins_with_is_read_as_it_is() -> None:
    task = load_task(FILES / "basic.yaml")
    assert task.sources == ("mysql-replica-01", "mysql-replica-02")
    for instance in task.instances:
        assert instance.routing.target_of(TableId("shop_1", "orders_7")) == TableId("shop", "orders")
        assert instance.routing.target_of(TableId("shop_1", "customers")) is None
        assert (instance.dump.threads, instance.load.threads) == (4, 16)


def test_the_condition_of_the_manual_is_that_of_the_dump(write: Write) -> None:
    task = load_task(write(full() | {"task-mode": "all"}))
    assert task.instances[0].dump.where == "id > 7"


def test_every_key_of_the_manual_is_known(write: Write) -> None:
    task = load_task(write(full()))
    first, second = task.instances
    assert (first.start, second.start) == (Location("mysql-bin.000001", 4), Location("mysql-bin.000002", 4))
    assert (first.load.on_duplicate, second.load.on_duplicate) == (OnDuplicate.REPLACE, OnDuplicate.REPLACE)
    found = first.routing.reshaping(TableId("shop_1", "orders_7")).extracted
    assert [(each.column, each.value) for each in found] == [
        ("c_table", "7"),
        ("c_schema", "1"),
        ("c_source", "replica01"),
    ]
    assert task.target.security is not None and task.target.security.allowed == ("target",)
    assert first.source.endpoint.security is None, "a block of empty values is no block"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("black-white-list", "is the old name of 'block-allow-list'"),
        ("import-mode", "'sql' is the old name of 'logical'"),
        ("binlog-gtid", "binlog-name and binlog-pos are the start"),
        ("remove-meta", "`unshard run --remove-meta`"),
        ("enable-heartbeat", "DM itself has removed it"),
        ("ansi-quotes", "the sql_mode of a statement"),
        ("enable-ansi-quotes", "the sql_mode of a statement"),
        ("batch", "unshard.window-size"),
        ("safe-mode-duration", "at the position of the dump's end"),
        ("dir", "unshard.storage-path"),
        ("pd-addr", "physical import"),
        ("mydumper-path", "Spark reads the tables"),
        ("where", "nothing is dumped"),
        ("relay-binlog-gtid", "the relay begins where the task begins"),
        ("remain-space", "as soon as no checkpoint needs them"),
        ("backoff-max", "Airflow retries"),
        ("password", "use conn-id or password-env instead"),
        ("mode", "'full' is not supported: nothing is validated continuously: run `unshard validate`"),
    ],
)
def test_keys_that_do_nothing_are_warned_of_and_say_why(write: Write, key: str, words: str) -> None:
    task: Task = load_task(write(full()))
    found = [warning for warning in task.warnings if re.search(rf"\.{key}: |:\d+ {key}: ", warning)]
    assert found and all(words in warning for warning in found), task.warnings


@pytest.mark.parametrize("name", ["basic", "full", "exported", "advanced"])
def test_the_same_files_are_read_in_optimistic_mode(write: Write, name: str) -> None:
    body = yaml.safe_load((FILES / f"{name}.yaml").read_text())
    pessimistic = load_task(write(body | {"shard-mode": "pessimistic", "strict-optimistic-shard-mode": False}))
    task = load_task(write(body | {"shard-mode": "optimistic", "strict-optimistic-shard-mode": True}))
    assert task.shard_mode is ShardMode.OPTIMISTIC and task.options.is_strict
    assert task.warnings == pessimistic.warnings, "no key has another meaning"


def test_the_migration_page_has_every_key() -> None:
    page = (ROOT / "docs/migrating-from-dm.md").read_text()
    names = {name for block in BLOCKS if block is not OPTIONS for name in block.names}
    assert len(names) > 100
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_an_exported_task_is_read() -> None:
    task = load_task(FILES / "exported.yaml")
    (found,) = task.instances
    assert (found.dump.threads, found.load.threads, found.sync.workers) == (4, 16, 16), "0 means the default"
    assert found.routing.target_of(TableId("shop_2", "orders_7")) == TableId("shop", "orders")
    assert found.routing.target_of(TableId("shop_2", "other")) is None
    assert (task.timezone, task.target.session) == ("Asia/Shanghai", (("tidb_txn_mode", "optimistic"),))
    assert found.online and found.online.shadow.are_own
    assert re.fullmatch(r"t-__s_t\.[0-9a-f]{8}", task.plain_name)
    assert task.storage.endswith(task.plain_name)
    told = "\n".join(warning for warning in task.warnings if warning not in task.idle)
    for words in (
        "target-database.password: this is not the password: dmctl shows ****** in its place",
        "from.password: the password looks like output of `dmctl encrypt`, which unshard does not decrypt",
        "mode: 'fast' is not supported: nothing is validated continuously",
        "'--database' is not applied: the dump has the tables that the block-allow list selects",
        "'--tables-list' is not applied",
    ):
        assert words in told
    assert "black-white-list" not in told, "an empty block is no block"
    idle = "\n".join(task.idle)
    assert "'--statement-size' has no effect here: the dump contains no statements" in idle
    assert "'split table partition' has no effect here: no statement of a source has this name" in idle
    silent = ("experimental", "statement-size'", "remove-meta", "syncer-thread", "disable-detect", "heartbeat")
    assert not [word for word in silent if f"'{word}" in idle], "zero, false and empty ask for nothing"


def test_an_exported_folder_is_read(tmp_path: Path) -> None:
    shutil.copytree(FILES / "sources", tmp_path / "configs/sources")
    (tmp_path / "configs/tasks").mkdir()
    (tmp_path / "configs/relay_workers.json").write_text('{"mysql-replica-01": ["worker1"]}')
    task = tmp_path / "configs/tasks/shop.yaml"
    task.write_text((FILES / "basic.yaml").read_text())
    assert load_task(task).sources == SOURCES
    (tmp_path / "configs/tasks/sources").mkdir()
    with pytest.raises(SeveralErrors, match=SourceUnknown.code):
        load_task(task)


def test_exported_files_of_an_older_version_are_read() -> None:
    task = load_task(FILES / "exported-files.yaml")
    (found,) = task.instances
    assert (found.start, found.start_gtid) == (None, "")
    assert found.start_unset.endswith("exported-files.yaml:67 mysql-instances[0].meta")
    assert starting_at(task, "2026-01-31T00:00:00").instances[0].start_time is not None
    assert sum("output of `dmctl encrypt`" in warning for warning in task.warnings) == 2


def test_a_task_of_the_first_versions_is_read() -> None:
    task = load_task(FILES / "advanced.yaml")
    first, second = task.instances
    dumped = [
        first.routing.target_of(TableId(schema, name)) for schema in ("shop_1", "shop_2") for name in ("t_1", "t_3")
    ]
    assert dumped == [TableId("shop", "t"), None, None, None], "-B and -T select what is dumped"
    assert second.routing.target_of(TableId("shop_2", "t_3")) == TableId("shop", "t")


COMMANDS = (
    "check-task",
    "start-task",
    "stop-task",
    "pause-task",
    "resume-task",
    "query-status",
    "shard-ddl-lock",
    "unlock-ddl-lock",
    "binlog skip",
    "handle-error",
    "binlog-schema",
    "operate-source",
    "start-relay",
    "stop-relay",
    "purge-relay",
    "transfer-source",
    "config",
    "validation",
    "encrypt",
    "sync-diff-inspector",
    "task update",
    "operate-leader",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_migration_page_has_every_command(command: str) -> None:
    assert f"`{command}" in (ROOT / "docs/migrating-from-dm.md").read_text()
