"""Plays the JSON cases of both modes (`tests/integration/*_cases.json`) against the prototype."""

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prototype import paper
from prototype.group import Policy
from prototype.world import World
from tests.unit.join.test_cases import INSERT, default_of, shard_of, values
from unshard.core.model import Shard, TableId

ROOT = Path(__file__).parents[1] / "tests/integration"
PESSIMISTIC = [c for c in json.loads((ROOT / "ddl_cases.json").read_text()) if c["mode"] == "pessimistic"]
OPTIMISTIC = json.loads((ROOT / "optimistic_cases.json").read_text())
PACES = ("each", "end", "random")
UNION = {"sddl3-079-p": [[1, "wer"], [2, None], [0, "wer"], [0, None]]}
"""Cases in which DM's target refuses a DDL that MariaDB accepts (tests/integration/ddl/test_cases.py)."""
NOT_ON_PAPER = {
    "sddl3-080-p": "two shards with one key: a collision of rows, no question of a DDL",
    "sddl3-085-p": "visibility of an index (MySQL 8), which the project does not play either",
    "sddl3-086-p": "visibility of an index (MySQL 8), which the project does not play either",
}
REFUSED = {"manual-ddl-force-remove-lock-p", "exec-error-skip-p", "replace-unsupported-ddl-p", "skip-unsupported-ddl-p"}
"""Cases whose target refuses the DDL of the shards."""
paper.paper.DEFAULT_COLLATIONS["utf32"] = "utf32_general_ci"


class Wrong(AssertionError):
    """A case does not end as it should."""


class Better(Exception):
    """A case ends with the union of all shards where it expects an operator."""


class Play:
    """One case with one policy."""

    def __init__(self, case: Mapping[str, Any], policy: Policy, in_order: bool, pace: str) -> None:
        self.case, self.policy, self.in_order, self.pace = case, policy, in_order, pace
        self.dice, self.serial, self.is_stopped = random.Random(case["id"]), 0, False
        tables = {}
        overrides = case.get("create_overrides") or {}
        for source, content in case["sources"].items():
            for schema, names in content["schemas"].items():
                for name in names:
                    text = overrides.get(f"{source}.{schema}.{name}") or case["create"]
                    tables[Shard(source, TableId(schema, name))] = paper.create(text)
        self.world = World(tables, self.dice, policy, in_order)

    def play(self) -> World:
        for each in self.case.get("init_sql") or []:
            self.step(each["source"], each["sql"])
        self.world.run()
        for number, each in enumerate(self.case["steps"], 1):
            ops = [op for op in self.case.get("ops") or [] if op["after_step"] == number]
            self.world.refuses = self.case["id"] in REFUSED and self.is_refused
            self.step(each["source"], each["sql"])
            if self.is_stopped:
                pass
            elif self.pace == "each" or ops:
                self.world.run()
            elif self.pace == "random":
                shards = sorted(self.world.upstream)
                for shard in self.dice.sample(shards, self.dice.randrange(len(shards) + 1)):
                    self.world.window(shard, self.dice.randrange(1, 4))
            if (
                self.policy is Policy.TOGETHER
                and not self.is_stopped
                and not is_weak(self.case)
                and not self.has_command
            ):
                self.world.check_together()
            for op in ops:
                self.order(op["op"], op.get("sql", ""), op.get("args", ""))
        self.world.run()
        return self.world

    is_refused = True

    @property
    def has_command(self) -> bool:
        return any(op["op"].startswith(("binlog", "shard-ddl")) for op in self.case.get("ops") or [])

    def order(self, what: str, sql: str, args: str) -> None:
        match what:
            case "downstream_sql" if found := INSERT.match(sql):
                ids = [*self.world.target.names]
                for group in re.findall(r"\(([^()]*)\)", found[3]):
                    self.world.rows[f"down {group}"] = dict(zip(ids, values(group), strict=True))
            case "downstream_sql" if "ADD" in sql:
                self.by_hand = [*getattr(self, "by_hand", []), re.sub(r"merged\.tb", "t", sql)]
            case "downstream_sql":
                self.world.rows.clear()
            case "stop-task":
                self.is_stopped = True
            case "start-task":
                self.is_stopped = False
                old, self.world = (
                    self.world,
                    World(
                        {s: up.table for s, up in self.world.upstream.items()}, self.dice, self.policy, self.in_order
                    ),
                )
                for shard, up in old.upstream.items():
                    for key, row in up.rows.items():
                        self.world.write(shard, key, row)
                self.world.run()
            case "shard-ddl-lock unlock" if "force-remove" in args:
                self.is_refused = self.world.refuses = False
                assert self.world.replace_all(*self.by_hand)
                self.world.run()
            case "shard-ddl-lock unlock":
                self.is_stopped = False
                assert self.world.unlock()
            case "binlog skip":
                self.is_refused = self.world.refuses = False
                if self.world.changes():
                    assert self.world.skip()
            case "binlog replace":
                self.is_refused = self.world.refuses = False
                assert self.world.replace_all(re.sub(r"shard_1\.tb1", "t", args))
            case _:
                self.world.run()

    # --- SQL on paper

    def step(self, source: str, sql: str) -> None:
        world = self.world
        if found := INSERT.match(sql):
            self.insert(shard_of(source, found[1]), found[2], found[3])
        elif found := re.match(r"ALTER TABLE ([\w.]+)", sql):
            world.ddl(shard_of(source, found[1]), f"ALTER TABLE t {sql.partition(found[1])[2].strip()}")
        elif found := re.match(r"CREATE TABLE (?:IF NOT EXISTS )?([\w.]+)", sql):
            if shard_of(source, found[1]) not in world.upstream:
                world.create(shard_of(source, found[1]), paper.create(sql))
        elif found := re.match(r"DROP TABLE ([\w.]+)", sql):
            world.drop(shard_of(source, found[1]))
        elif found := re.match(r"DROP DATABASE (\w+)", sql):
            for shard in [s for s in world.upstream if (s.source, s.table.schema) == (source, found[1])]:
                world.drop(shard)
        elif found := re.match(r"RENAME TABLE ([\w.]+) TO ([\w.]+)", sql):
            world.rename(shard_of(source, found[1]), shard_of(source, found[2]))
        elif found := re.match(r"UPDATE ([\w.]+) SET (\w+) = (.+?)(?: WHERE (.+))?$", sql):
            self.update(shard_of(source, found[1]), found[2], found[3], found[4])
        elif found := re.match(r"DELETE FROM ([\w.]+)(?: WHERE (.+))?$", sql):
            shard = shard_of(source, found[1])
            for key in [k for k, row in world.upstream[shard].rows.items() if holds(found[2], row)]:
                world.delete(shard, key)
        else:
            assert sql.startswith(("TRUNCATE", "CREATE DATABASE")), sql

    def insert(self, shard: Shard, columns: str | None, body: str) -> None:
        table = self.world.upstream[shard].table
        plain = [c for c in table.columns if not c.generated]
        names = [n.strip().lower() for n in columns.split(",")] if columns else [c.name.lower() for c in plain]
        defaults = {c.name.lower(): default_of(c.default) for c in plain}
        for group in re.findall(r"\(((?:'(?:[^']|'')*'|[^()'])*)\)", body):
            found = [v.replace("''", "'") if isinstance(v, str) else v for v in literals(group)]
            self.serial += 1
            key = found[0] if "PRIMARY" in table.indexes else f"row {self.serial}"
            key = f"row {self.serial}" if key in self.world.rows and "PRIMARY" not in table.indexes else key
            self.world.write(shard, key, {**defaults, **dict(zip(names, found, strict=True))})

    def update(self, shard: Shard, column: str, expression: str, where: str | None) -> None:
        for key, row in [*self.world.upstream[shard].rows.items()]:
            if holds(where, row):
                self.world.write(shard, key, {**row, column.lower(): evaluated(expression, row)})


def literals(text: str) -> list[object]:
    found = re.findall(r"'((?:[^']|'')*)'|(NULL)|(-?\d+\.\d+)|(-?\d+)", text)
    return [None if null else float(d) if d else int(n) if n else string for string, null, d, n in found]


def evaluated(expression: str, row: Mapping[str, object]) -> object:
    names = {name: value for name, value in row.items()}
    try:
        return eval(expression.replace("`", ""), {}, names)  # noqa: S307
    except TypeError:
        return None


def holds(where: str | None, row: Mapping[str, object]) -> bool:
    if not where:
        return True
    if found := re.match(r"(\w+) IS NOT NULL", where):
        return row[found[1].lower()] is not None
    return bool(evaluated(re.sub(r"(?<![<>])=", "==", where), row))


# --- the end


def rows_of(world: World, columns: list[str]) -> Counter:
    ids = {name: id for id, name in world.target.names.items()}
    found = []
    for row in world.rows.values():
        shown = []
        for name in columns:
            definition = world.target.table.columns[ids[name]]
            if definition is not None and definition.is_generated:
                (words,) = definition.generated
                text = "".join(str(row.get(w) if isinstance(w, int) else w) for w in words)
                shown.append(eval(text))  # noqa: S307
            else:
                shown.append(row.get(ids[name]))
        found.append(shown)
    return counted(found)


def counted(rows: list[list[object]]) -> Counter:
    """Count rows, with numbers as text without a fraction of zero."""
    return Counter(tuple(re.sub(r"\.0$", "", str(value)) for value in row) for row in rows)


def check_equal_end(world: World) -> None:
    """Check that nothing waits, and that all shards and the target are equal."""
    if world.changes() or world.held():
        raise Wrong(f"still open: {[(c.text, c.state) for c in world.changes()]}, held {world.held()}")
    world.check_rows()
    if len({up.table.structure.shape for up in world.upstream.values()}) == 1 and world.upstream:
        world.check_end()
        names = {c.name.lower() for c in next(iter(world.upstream.values())).table.columns}
        if {*world.target.names.values()} != names:
            raise Wrong(f"columns {world.target.names} instead of {names}")


def judge(case: Mapping[str, Any], world: World) -> None:
    expect = case["expect"]
    ops = [op["op"] for op in case.get("ops") or []]
    if case["id"] in UNION or expect["kind"] == "rows" or "shard-ddl-lock unlock" in ops:
        if expect["kind"] == "rows" and not is_weak(case) and not {"binlog skip", "binlog replace"} & {*ops}:
            check_equal_end(world)
        elif world.changes() or world.held():
            raise Wrong("still open")
        world.check_rows()
        compare(case, world)
    elif not world.changes():
        check_equal_end(world)
        total = sum(len(up.rows) for up in world.upstream.values())
        if len(world.rows) != total:
            raise Wrong("rows are missing")
        raise Better
    else:
        (first, *_) = world.changes()
        if expect["kind"] == "locked":
            if first.state != "waiting" or {s.source for s in first.lacks} != {*expect["lock"]["unsynced"]}:
                raise Wrong(f"{first.state} {first.lacks}")
        elif first.state != "conflict" or not first.others:
            raise Wrong(f"{first.state}, not a conflict")
        compare(case, world)
        world.check_rows()
    for check in case.get("checks") or []:
        if check["kind"] == "columns_include":
            found = {*world.target.names.values()}
            if (found >= {*check["columns"]}) is not check["expect"]:
                raise Wrong(str(check))


def compare(case: Mapping[str, Any], world: World) -> None:
    expect = case["expect"]
    rows = UNION.get(case["id"], expect.get("rows"))
    if rows is None or expect.get("columns") is None:
        return
    found = rows_of(world, expect["columns"])
    if found != counted(rows):
        raise Wrong(f"rows {sorted(found)} instead of {rows}")


def is_weak(case: Mapping[str, Any]) -> str:
    """Return why a case that passes shows nothing; empty if it shows something."""
    ran = [s["sql"] for s in case["steps"]]
    if not any("ALTER TABLE" in s for s in ran) and not case["expect"].get("rows"):
        return "whole tables of a one-to-one target, without rows"
    return ""
