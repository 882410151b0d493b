"""The ways out of a conflict as commands, for the command line, the page and the messages of Airflow tasks.

Only ways are offered that lead the rows of all shards into the target (core.ddl.waysout). Each of the other usual ways
has a reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from unshard.core.ddl.lock import Way
from unshard.core.ddl.lockcommands import DropShard, Force, LockCommand, Replace, Retry, Skip
from unshard.core.model import Shard
from unshard.core.shown import shell
from unshard.units.ddl.lockcommands import one_line, shard_argument
from unshard.units.ddl.scene import LockView

TOLD = {
    Way.UNLOCKED: "as this one if it leads to the same columns, else as one that follows",
    Way.SAME: "as this one",
    Way.NOTHING: "as nothing",
    Way.SKIPPED: "this one as nothing, because the target has its columns already",
    Way.EXTENDED: "as this one, with the columns of both",
    Way.PLACED: "as a new shard whose columns the target gets first",
}
NOT = {Way.UNLOCKED: "unlock", Way.SAME: "as this one", Way.NOTHING: "as nothing"}
BEFORE_SKIP = "let the target execute this DDL before the one that the shards must skip"


@dataclass(frozen=True, slots=True)
class Offer:
    """A way out: what the DDL of the shards in conflict counts as, and the commands for that, in order."""

    text: str
    commands: tuple[LockCommand, ...]
    shard: Shard | None = None
    """The shard that it concerns; None: all shards in conflict."""


def offers(view: LockView, most: int | None = None) -> tuple[Offer, ...]:
    """Return the ways out of a lock's conflict; those for one shard only for the first `most` shards."""
    others = with_another(view)
    if view.lacks_place:
        return (Offer(TOLD[Way.PLACED], (Replace(view.id, view.extension),)),)
    if view.conflicts and not others:
        return (Offer(BEFORE_SKIP, (Force(view.id),)),)
    return tuple(_offers(view, others[:most])) if others else ()


def _offers(view: LockView, others: tuple[Shard, ...]) -> Iterator[Offer]:
    if Way.UNLOCKED in view.ways:
        yield Offer(TOLD[Way.UNLOCKED], (Force(view.id),))
    for shard in others:
        if Way.SAME in view.ways:
            yield Offer(TOLD[Way.SAME], (Replace(view.id, (view.ddl,), shard),), shard)
        if Way.NOTHING in view.ways:
            yield Offer(TOLD[Way.NOTHING], (Skip(view.id, shard),), shard)
    if Way.SKIPPED in view.ways:
        yield Offer(TOLD[Way.SKIPPED], (Skip(view.id),))
    if Way.EXTENDED in view.ways:
        yield Offer(TOLD[Way.EXTENDED], (Replace(view.id, view.extension), Force(view.id)))


def barred(view: LockView) -> tuple[str, ...]:
    """Return the usual ways out that are not offered, each with its reason."""
    return tuple(f"{NOT[way]}: {why}" for way, why in view.barred) if with_another(view) or view.lacks_place else ()


def as_text(command: LockCommand, task: str) -> str:
    """Return a command as it is typed in a shell."""
    at = f"{shell(task)} {shell(command.lock)}"
    match command:
        case Force():
            return f"unshard unlock {at}"
        case Skip(shard=shard):
            return f"unshard skip {at}{_of(shard)}"
        case Replace(shard=shard, statements=texts):
            return f"unshard replace {at}{_of(shard)} {' '.join(f'--sql {shell(one_line(t))}' for t in texts)}"
        case DropShard(shard=shard):
            return f"unshard drop-shard {at}{_of(shard)}"
        case Retry():
            return f"unshard retry {shell(task)} --lock {shell(command.lock)}"
        case _:
            assert_never(command)


def _of(shard: Shard | None) -> str:
    return f" --shard {shell(shard_argument(shard))}" if shard else ""


def with_another(view: LockView) -> tuple[Shard, ...]:
    """Return the shards in conflict at another DDL; the others have a pending skip of an earlier lock."""
    return tuple(shard for shard in view.conflicts if shard not in view.ready)
