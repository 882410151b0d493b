"""`unshard collisions`: keys that two shards have in common, and the state of each collision."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from unshard.cli.console import Answer, Console, table
from unshard.config import load_task
from unshard.core.rows.rowerrors import Clash, Found, RecordedCollision
from unshard.core.shown import amount, as_document
from unshard.core.sql.quoting import qualified
from unshard.units.begun import existing_meta

HEADER = ("TARGET", "KEY", "SHARD", "OWNER", "FOUND IN", "STATE", "TIMES", "LAST")
SHOWN = 1000


def collisions(options: Namespace, console: Console) -> Answer:
    """List collisions, open ones first."""
    task = load_task(Path(options.task))
    console.warn_of(task)
    with existing_meta(task) as meta:
        found = meta.collisions.all(SHOWN, only_open=not options.all) if meta else ()
    document = {"task": task.name, "warnings": [*task.warnings], "collisions": [_document(each) for each in found]}
    none = f"no collision {'was found' if options.all else 'is open'}"
    lines = table(HEADER, map(_row, found), console.width) if found else [none]
    if any(each.is_open for each in found):
        lines += [
            "remove or change the row in one of its two shards, then run the task again to continue;",
            "or set on-duplicate to replace or ignore in the task file",
        ]
    lines += [
        line
        for each in found
        if each.is_open and each.found is Found.WINDOW and not each.clash.owner
        for line in _left(each.clash)
    ]
    return Answer(document, lines, 3 if any(each.is_open for each in found) else 0)


def place_of(each: RecordedCollision) -> str:
    """Return where a collision was found, as text."""
    return "load" if each.found is Found.LOAD else f"window {each.window}"


def _left(clash: Clash) -> tuple[str, ...]:
    """Return the remedy for a row of the target that belongs to no known shard."""
    if not clash.condition:
        return ()
    table = qualified(clash.target.schema, clash.target.name)
    return (
        f"no other shard is known to have {clash.key}: TRUNCATE and DROP leave a shard's rows in the target;"
        " if so, remove the row there:",
        f"  DELETE FROM {table} WHERE {clash.condition}",  # noqa: S608
    )


def _document(each: RecordedCollision) -> dict[str, Any]:
    keys = "target key shard owner found window state times others first_at last_at"
    return as_document(each, keys, **{key: f"clash.{key}" for key in ("target", "key", "shard", "owner", "others")})


def _row(each: RecordedCollision) -> tuple[object, ...]:
    clash = each.clash
    key = f"{clash.key} and {amount(clash.others)} more" if clash.others else clash.key
    last = f"{each.last_at:%Y-%m-%d %H:%M:%S}"
    return clash.target, key, clash.shard, clash.owner, place_of(each), each.state, amount(each.times), last
