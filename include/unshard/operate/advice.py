"""The commands that help with a lock, as data for the command line, the page and the messages of Airflow tasks.

In a conflict only ways are offered that lead the rows of all shards into the target (core.ddl.waysout). Each of the
other usual ways has a reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unshard.core.ddl.lock import LockState, Way
from unshard.core.model import Shard, TableId
from unshard.core.shown import amount, lasting, shell
from unshard.core.task.state import Phase
from unshard.core.window.suspension import SuspendedTarget
from unshard.operate.command import DropShard, Force, LockCommand, Replace, Retry, Skip, form_fields, shards_of, typed

if TYPE_CHECKING:
    from unshard.units.ddl.scene import LockFacts, LockView
    from unshard.units.task.status import Remarks, SourceStatus

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
UNKNOWN = "unlock: the effect of the statement is unknown, so there is nothing to execute"
JOINED = "unlock: the target follows the join of its shards, so other shards would not fit into it"
SHOWN_CONFLICTS = 3


@dataclass(frozen=True, slots=True)
class Offer:
    """A way out: what the DDL of the shards in conflict counts as, and the commands for that, in order."""

    text: str
    commands: tuple[LockCommand, ...]
    shard: Shard | None = None
    """The shard that it concerns; None: all shards in conflict."""


def offers(view: "LockView", most: int | None = None) -> tuple[Offer, ...]:
    """Return the ways out of a lock's conflict; those for one shard only for the first `most` shards."""
    if view.lacks_place:
        return (Offer(TOLD[Way.PLACED], (Replace(view.id, view.extension),)),)
    if view.conflicts and not view.others:
        return (Offer(BEFORE_SKIP, (Force(view.id),)),)
    if view.state is LockState.WAITING and Way.SKIPPED in view.ways:
        return (Offer(TOLD[Way.SKIPPED], tuple(Skip(view.id, shard) for shard in view.ready)),)
    return tuple(_offers(view, view.others[:most])) if view.others else ()


def _offers(view: "LockView", others: tuple[Shard, ...]) -> Iterator[Offer]:
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


def barred(view: "LockView") -> tuple[str, ...]:
    """Return the usual ways out that are not offered, each with its reason."""
    return tuple(f"{NOT[way]}: {why}" for way, why in view.barred) if view.others or not view.conflicts else ()


# --- advice -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunTask:
    """`unshard run`."""


@dataclass(frozen=True, slots=True)
class RetryTarget:
    """`unshard retry --table`."""

    target: TableId


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence, with the commands that do what it says, in order."""

    text: str
    commands: tuple[LockCommand | RunTask | RetryTarget, ...] = ()
    is_part: bool = False
    """Whether it is one of the possibilities that the sentence before them announces."""


def advice(view: "LockView") -> tuple[Advice, ...]:
    """Return what helps with an open lock."""
    if view.is_undescribed:
        found = _describing(view)
    elif view.is_joined:
        found = _of_joined(view)
    elif view.lacks_place:
        found = _of_new_shard(view)
    elif view.state in (LockState.UNDECIDED, LockState.FAILED):
        found = _after_a_refusal(view)
    elif view.conflicts:
        found = _of_conflict(view)
    else:
        found = _of_waiting(view)
    return tuple(found)


def _describing(view: "LockView") -> Iterator[Advice]:
    """Yield the command for shards whose columns after the DDL nothing tells; several of one lock have the same."""
    shard = _first(view) if view.is_joined or len(view.ready) == 1 else None
    yield Advice("describe the shard", (Replace(view.id, ("CREATE TABLE …",), shard),))


def _of_joined(view: "LockView") -> Iterator[Advice]:
    """Yield the ways out for a DDL of a shard whose target follows the join: only this shard waits."""
    shard = _first(view)
    if view.state is LockState.UNDECIDED:
        yield Advice("only the rows of the ready shards wait until you decide what the DDL means for the target:")
    else:
        if view.error:
            yield Advice("correct the cause of the error; the next windows try it again, or at once", (RunTask(),))
        yield Advice(
            "only the rows of the ready shards wait. It ends when the shards agree, or when this shard goes back; else:"
        )
    yield from _again(view)
    if view.state is LockState.UNDECIDED:
        yield Advice("to count it as other statements", (Replace(view.id, (), shard),), True)
    if not view.is_contradicted:
        yield Advice("its rows without the columns that have no place", (Skip(view.id, shard),), True)
    yield from _without(view, shard)


def _of_new_shard(view: "LockView") -> Iterator[Advice]:
    yield from _deciding(view, "decide what the DDL means for the target:")
    yield from _without(view, _first(view))


def _after_a_refusal(view: "LockView") -> Iterator[Advice]:
    """Yield the commands for a DDL whose effect is unknown or that the target has refused."""
    if view.state is LockState.FAILED:
        yield Advice("correct the cause of the error, then", (RunTask(),))
    else:
        yield Advice("decide what the DDL means for the target:")
    yield from _again(view)
    yield Advice("without executing anything", (Skip(view.id),), True)
    yield Advice("other statements instead", (Replace(view.id, ()),), True)
    if view.state is LockState.UNDECIDED:
        yield Advice("as the DDL of one shard, to join its group", (Replace(view.id, (), _first(view)),), True)


def _of_conflict(view: "LockView") -> Iterator[Advice]:
    """Yield the ways out of a conflict that lead the rows of all shards into the target, and why others do not."""
    yield from _again(view, is_part=False)
    if not view.others:
        yield Advice(BEFORE_SKIP, (Force(view.id),))
    else:
        yield from _deciding(
            view, "decide what the DDL of the shards in conflict counts as; the rows of all shards reach the target:"
        )
    yield from _gone(view, view.conflicts)


def _deciding(view: "LockView", text: str) -> Iterator[Advice]:
    found = offers(view, SHOWN_CONFLICTS)
    if found:
        yield Advice(text)
    else:
        yield Advice(
            "no usual command gives every column of the shards a place in the target: replace the DDL with statements"
            " that do",
            (Replace(view.id, ()), Force(view.id)),
        )
    for offer in found:
        yield Advice(f"to count it {offer.text}", offer.commands, True)
    for why in barred(view):
        yield Advice(f"not {why}", (), True)


def _of_waiting(view: "LockView") -> Iterator[Advice]:
    if view.barred:
        yield from _deciding(view, "decide what the DDL means for the target:")
        yield from _gone(view, view.missing)
    elif view.missing:
        yield Advice("run the same DDL on the missing shards, or continue without them", (Force(view.id),))
        yield from _gone(view, view.missing)
    elif view.stopped:
        yield Advice("when the cause is corrected", (RetryTarget(view.target),))
    else:
        yield Advice("the next windows continue automatically; to continue without waiting", (Force(view.id),))


def _again(view: "LockView", is_part: bool = True) -> Iterator[Advice]:
    if view.is_refused:
        yield Advice("to try the DDL again", (Retry(view.id),), is_part)


def _without(view: "LockView", shard: Shard | None) -> Iterator[Advice]:
    if shard is not None:
        yield Advice("to take it out of its group for good", (DropShard(view.id, shard),), True)


def _gone(view: "LockView", shards: tuple[Shard, ...]) -> Iterator[Advice]:
    yield Advice("a shard that is gone for good", (DropShard(view.id, shards[0]),), True)


def _first(view: "LockView") -> Shard | None:
    return next(iter((*view.ready, *view.conflicts, *view.missing)), None)


def advice_lines(view: "LockView", task: str, before_unlock: str = "") -> list[str]:
    """Return the advice as text, one command per line.

    `task` is the path of the task file; `before_unlock` is put before a command that unlocks.
    """
    found = []
    for each in advice(view):
        text = f"  {each.text}" if each.is_part else each.text
        first, *then = [_typed(command, task, before_unlock) for command in each.commands] or [""]
        found += [f"{text}: {first}" if first else text, *(f"  then: {one}" for one in then)]
    return found


def _typed(command: LockCommand | RunTask | RetryTarget, task: str, before_unlock: str) -> str:
    match command:
        case RunTask():
            return f"unshard run {shell(task)}"
        case RetryTarget(target=target):
            return f"unshard retry {shell(task)} --table {shell(str(target))}"
        case _:
            return (before_unlock if isinstance(command, Force) else "") + typed(command, task)


def after_correction(stop: SuspendedTarget, task: str) -> str:
    """Return how a suspended target continues."""
    again = _typed(RetryTarget(stop.target), task, "")
    return f"its rows are held. It continues when the table is altered; after another correction: {again}"


# --- the next step of a task -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next thing that an operator does, or that the task waits for."""

    text: str
    needs_operator: bool = True
    lock: str = ""
    """The lock that it is about, if any."""

    def __str__(self) -> str:
        return self.text


DECIDE = {LockState.CONFLICT: "in conflict", LockState.UNDECIDED: "undecided", LockState.FAILED: "failed"}
NO_STEP = NextStep("nothing to do", False)


def next_step(sources: "Sequence[SourceStatus]", told: "Remarks") -> NextStep:
    """Return the next step of a task: the most urgent one, if there are several."""
    steps = _of_task(sources, told), _of_locks(told), _of_full_load(sources), _of_rows(told)
    return next((step for step in steps if step is not None), NO_STEP)


def _of_task(sources: "Sequence[SourceStatus]", told: "Remarks") -> NextStep | None:
    if told.pause is not None:
        return NextStep(f"resume the task, which is {told.pause.kind}")
    failing = [each for each in sources if each.error is not None]
    if failing and failing[0].error is not None:
        return NextStep(f"correct the error of source {failing[0].source}: {failing[0].error.next_step}")
    if told.stops:
        targets = sorted({str(stop.target) for stop in told.stops})
        more = f" and {len(targets) - 1} more" if len(targets) > 1 else ""
        return NextStep(f"correct the cause of suspended target {targets[0]}{more}, then retry")
    return None


def _of_locks(told: "Remarks") -> NextStep | None:
    """Return the step of the lock that needs a decision, or else of the oldest one."""
    is_open = sorted((lock for lock in told.locks if lock.is_open), key=lambda lock: lock.state not in DECIDE)
    return _of_lock(is_open[0]) if is_open else None


def _of_lock(lock: "LockFacts") -> NextStep:
    if state := DECIDE.get(lock.state):
        return NextStep(f"decide on lock {lock.id}, which is {state}", True, lock.id)
    if lock.missing:
        count = len(lock.missing)
        shards = "1 more shard" if count == 1 else f"{amount(count)} more shards"
        return NextStep(f"run the DDL of lock {lock.id} on {shards}, or unlock it", True, lock.id)
    return NextStep(f"wait until the DDL of lock {lock.id} is executed", False, lock.id)


def _of_full_load(sources: "Sequence[SourceStatus]") -> NextStep | None:
    phases = [each.phase for each in sources]
    if all(phase is Phase.NEW for phase in phases):
        return NextStep("start the full load")
    if all(phase is Phase.SYNC for phase in phases):
        return None
    parts = [each.load if each.phase.order >= Phase.DUMPED.order else each.dump for each in sources]
    left = max((part.seconds_left for part in parts if part.seconds_left), default=None)
    return NextStep(f"wait for the full load{f', about {lasting(left)}' if left else ''}", False)


def _of_rows(told: "Remarks") -> NextStep | None:
    if diverted := sum(told.diverted.values()):
        return NextStep(f"correct {amount(diverted)} diverted rows in their shards")
    different = [each for each in told.proofs if each.different]
    return NextStep(f"repair target {different[0].target}: some rows differ from its shards") if different else None


# --- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choices:
    """The commands that the page and the question of the task `replace` offer, besides those always possible."""

    unlock: bool
    skip: tuple[Shard, ...]
    skip_all: bool
    ready: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """Replacements with their statements: what they mean, and the fields of the form."""
    barred: tuple[str, ...] = ()
    """The commands that are not offered, each with its reason."""


def choices(view: "LockView") -> Choices:
    """Return the commands to offer for a lock."""
    if view.is_joined:
        return Choices(False, () if view.is_contradicted else view.ready, False, barred=(JOINED,))
    if view.state is LockState.UNDECIDED and not view.lacks_place:
        return Choices(False, shards_of(view), True, barred=(UNKNOWN,))
    if view.state not in (LockState.CONFLICT, LockState.UNDECIDED) and not view.barred:
        return Choices(True, shards_of(view), True)
    found = [(offer.text, offer.commands[0]) for offer in offers(view)]
    skips = [command.shard for _, command in found if isinstance(command, Skip)]
    return Choices(
        any(isinstance(command, Force) for _, command in found),
        tuple(shard for shard in skips if shard),
        None in skips,
        tuple((text, form_fields(command)) for text, command in found if isinstance(command, Replace)),
        barred(view),
    )
