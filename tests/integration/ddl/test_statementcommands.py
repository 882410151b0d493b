"""`unshard ddl` on real servers: by position, GTID and present error, kept across processes; no rows, so no Spark."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.integration.ddl.test_lockcommands import AT, FIRST, SECOND, Service, sitting_at
from tests.integration.task.test_cli import World
from unshard.adapters import mysql, upstream
from unshard.cli import main
from unshard.config import load_task
from unshard.units.ddl import coordinate
from unshard.units.relay.tasksource import pull_source
from unshard.units.window.sync import next_plan, run_window
from unshard.units.work import open_work

pytestmark = pytest.mark.integration


class Ahead(Service):
    """An operator who issues commands before the windows reach the statement."""

    def end(self, source: str) -> tuple[str, str]:
        """Return position and GTIDs of a source's end."""
        with contextlib.closing(mysql.connect(self.work.sources[source])) as connection:
            about = upstream.inspect(connection, source)
        return str(about.end), about.gtid

    def alter(self, shard: tuple[str, str], spec: str) -> None:
        getattr(self.world, shard[0]).run(f"ALTER TABLE {self.world.schema}_1.{shard[1]} {spec}")

    def follow(self, source: str) -> None:
        """Run windows in a process that has only the stored state."""
        with open_work(load_task(self.world.path)) as work:
            pull_source(work, source)
            while run_window(work, source).moved:
                pass
            coordinate.observe(work.meta)

    def ddl_order(self, *given: str) -> dict:
        """Issue a command about a statement; neither its dry run nor a repetition changes anything."""
        action, *rest = given
        before = self.all_orders()
        code, dry = self.act(action, *rest, "--dry-run")
        assert (code, dry["dry_run"]) == (0, True) and self.all_orders() == before, dry
        code, done = self.act(action, *rest, *AT)
        assert (code, done["changed"]) == (0, True), done
        assert done["effects"] == dry["effects"]
        return done

    def act(self, action: str, *rest: str) -> tuple[int, dict]:
        code = main(["ddl", action, str(self.world.path), *rest, "--json"])
        return code, json.loads(self._say())

    def refused(self, *given: str) -> str:
        code, said = self.act(*given, *AT)
        assert code == 1
        return said["error"]["code"]

    def all_orders(self) -> list[tuple[str, str, str]]:
        code, found = self.act("list")
        assert code == (3 if any(one["state"] == "waiting" for one in found["commands"]) else 0)
        return [(one["kind"], one["at"] or one["gtid"], one["state"]) for one in found["commands"]]

    def pending(self) -> list[str]:
        return [
            state.queue[0].routed.split("`")[-1].strip() for state in self.work.meta.structures.shards() if state.queue
        ]


@pytest.fixture
def desk(source_1, source_2, target, unique, tmp_path, monkeypatch, capsys) -> Iterator[Ahead]:
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    with sitting_at(Ahead, World(source_1, source_2, target, unique, tmp_path), capsys) as found:
        yield found


def test_statements_ahead_are_skipped_and_replaced_by_position_and_gtid(desk: Ahead) -> None:
    at, _ = desk.end("s1")
    desk.ddl_order("skip", "--source", "s1", "--at", at)
    assert desk.act("skip", "--source", "s1", "--at", at, *AT)[1]["changed"] is False
    assert desk.refused("replace", "--source", "s1", "--at", at, "--sql", "ALTER TABLE t_s1 ADD x INT") == "US-5044"
    desk.alter(FIRST, "ADD a INT")
    _, gtid = desk.end("s1")
    domain, server, number = gtid.split("-")
    desk.ddl_order(
        "replace",
        "--source",
        "s1",
        "--gtid",
        f"{domain}-{server}-{int(number) + 1}",
        "--sql",
        f"ALTER TABLE {desk.world.schema}.t ADD c BIGINT",
    )
    desk.alter(FIRST, "ADD b INT")
    desk.follow("s1")
    assert [state for _, _, state in desk.all_orders()] == ["used", "used"]
    assert desk.pending() == ["ADD c BIGINT"] and desk.columns() == ["id", "v"]
    at, _ = desk.end("s2")
    desk.ddl_order("inject", "--source", "s2", "--at", at, "--sql", "ALTER TABLE t_s2 ADD d INT")
    desk.alter(SECOND, "ADD e INT")
    desk.follow("s2")
    assert desk.lock()["state"] == "conflict"
    lock = desk.lock()["id"]
    assert desk.order("unlock", lock)["outcome"] == "executed"
    desk.order("unlock", desk.lock()["id"])
    assert desk.columns() == ["id", "v", "c", "d", "e"]
    actions = desk.world.target.run(
        f"SELECT action, reason, details FROM {desk.world.schema}_meta.operator_action WHERE lock_id = ''"
    )
    assert [(action, reason) for action, reason, _ in actions] == [
        ("ddl skip", "because"),
        ("ddl replace", "because"),
        ("ddl inject", "because"),
    ]


def test_an_order_that_is_taken_back_comes_too_late_or_hits_rows(desk: Ahead) -> None:
    at, gtid = desk.end("s1")
    desk.ddl_order("skip", "--source", "s1", "--at", at)
    desk.ddl_order("revert", "--source", "s1", "--at", at)
    assert desk.refused("revert", "--source", "s1", "--at", at) == "US-5046"
    desk.alter(FIRST, "ADD a INT")
    behind, _ = desk.end("s1")
    pull_source(desk.work, "s1")
    planned = next_plan(desk.work, "s1")
    desk.ddl_order("skip", "--source", "s1", "--at", at)
    with pytest.raises(Exception, match="US-5048"):
        desk.work.meta.windows.begin("s1", planned)
    desk.ddl_order("revert", "--number", "2")
    desk.work.meta.windows.begin("s1", next_plan(desk.work, "s1"))
    assert desk.refused("skip", "--source", "s1", "--at", at) == "US-5043"
    desk.follow("s1")
    assert desk.pending() == ["ADD a INT"]
    assert desk.refused("skip", "--source", "s1", "--at", at) == "US-5042"
    assert desk.refused("skip", "--source", "s1", "--gtid", gtid) == "US-5042"
    beyond = f"{behind.rpartition(':')[0]}:{10**19}"
    for wrong in (("--at", "4"), ("--at", beyond), ("--at", "other.000001:4"), ("--gtid", "x")):
        assert desk.refused("skip", "--source", "s1", *wrong) == "US-5047"
    for no_change in ("DROP TABLE t_s1", "ALTER TABLE t_s1 ADD x INT; DELETE FROM t_s1"):
        assert desk.refused("replace", "--source", "s1", "--at", behind, "--sql", no_change) == "US-5036"
    desk.ddl_order("skip", "--source", "s1", "--at", behind)
    desk.world.s1.run(f"INSERT INTO {desk.world.schema}_1.t_s1 (id) VALUES (1)")
    with pytest.raises(Exception, match="US-5040"):
        desk.follow("s1")
    assert desk.refused("replace", "--source", "s1", "--at", behind, "--sql", "ALTER TABLE t_s1 ADD x INT") == "US-5040"


FILTERED = """
filters:
  none: {{schema-pattern: "{schema}_*", events: ["drop column"], action: Error}}
"""


def test_the_present_error_of_all_sources(desk: Ahead) -> None:
    assert desk.refused("skip", "--all-sources", "--current") == "US-5045"
    text = desk.world.path.read_text().replace("block-allow-list: all}", "block-allow-list: all, filter-rules: [none]}")
    desk.world.path.write_text(text + FILTERED.format(schema=desk.world.schema))
    for shard in (FIRST, SECOND):
        desk.alter(shard, "DROP COLUMN v")
        with pytest.raises(Exception, match="DROP COLUMN v"):
            desk.follow(shard[0])
    assert len(desk.ddl_order("skip", "--all-sources", "--current")["effects"]) == 4
    for shard in (FIRST, SECOND):
        desk.follow(shard[0])
    assert desk.pending() == [] and desk.columns() == ["id", "v"]


def test_the_present_error_of_a_lock(desk: Ahead) -> None:
    desk.alter(FIRST, "ADD a INT")
    desk.follow("s1")
    desk.ddl(SECOND, "ADD a INT")
    desk.world.target.run(f"ALTER TABLE {desk.target} ADD a VARCHAR(9)")
    lock = desk.lock()["id"]
    coordinate.execute(desk.work.meta, desk.work.target, lock)
    assert desk.lock()["state"] == "failed"
    desk.ddl_order("replace", "--source", "s2", "--current", "--sql", f"ALTER TABLE {desk.target} MODIFY a INT")
    assert desk.lock() is None and desk.columns() == ["id", "v", "a"]
