"""The commands that an operator can issue for a lock, and their forms in a shell, on the page and in the record.

| command               | the target                          | the shards                                          |
|-----------------------|-------------------------------------|-----------------------------------------------------|
| Force                 | gets the DDL now                    | those without the DDL get a pending skip; in a      |
|                       |                                     | conflict, a DDL with the same columns counts as it  |
| Skip                  | gets nothing                        | those without the DDL get a pending skip            |
| Skip of one shard     | waits for the other shards          | its head is resolved, or it gets a pending skip     |
| Replace               | gets the statements instead         | as before: the lock waits until they have the DDL   |
| Replace for one shard | waits as before                     | its head is treated as these statements             |
| Retry                 | is asked again about a refused DDL  | as before: nothing is decided                       |
| DropShard             | keeps the shard's rows              | its DDL and rows are dropped, also all later ones   |

`Replace` decides what is executed, `Force` decides when. To execute a replaced DDL without waiting for the missing
shards, use both.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from unshard.core.ddl.issuedcommands import Cleared, IssuedCommand
from unshard.core.model import Shard
from unshard.core.shown import one_line, shell

if TYPE_CHECKING:
    from unshard.units.ddl.scene import LockFacts

LONGEST_REASON = 1000
_BETWEEN = re.compile(r";[ \t\r]*(?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class Force:
    """Execute the DDL of a lock without waiting for the missing shards."""

    lock: str
    owner: str | None = None
    """The source that executes the DDL, which it must have. None: the lock's owner, or the first source that has it."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Resolve a DDL without executing it, for all shards or for one."""

    lock: str
    shard: Shard | None = None
    seq: int | None = None
    """Number of the DDL in the shard's queue; 0: the DDL that the shard has not reached; None: the DDL at its head."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Execute other statements instead of a DDL, or treat the DDL of one shard as these statements."""

    lock: str
    statements: tuple[str, ...]
    shard: Shard | None = None
    seq: int | None = None
    """As in Skip."""


@dataclass(frozen=True, slots=True)
class DropShard:
    """Remove a shard from its group permanently; its rows in the target stay."""

    lock: str
    shard: Shard


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask the target again about a DDL that it has refused; if it accepts the DDL now, the lock goes on normally."""

    lock: str


LockCommand = Force | Skip | Replace | DropShard | Retry
ACTIONS: dict[type[LockCommand], str] = {
    Force: "unlock",
    Skip: "skip",
    Replace: "replace",
    DropShard: "drop-shard",
    Retry: "retry",
}
"""The names of the commands in the record and on the command line."""


def recorded(command: LockCommand, by: str | Cleared, via: str, reason: str) -> IssuedCommand:
    """Return the record of a command."""
    details = {"owner": getattr(command, "owner", None), "statements": list(getattr(command, "statements", ()))}
    shard = getattr(command, "shard", None)
    details["shard"] = str(shard) if shard else None
    return IssuedCommand(
        ACTIONS[type(command)], by, via, reason, {name: value for name, value in details.items() if value}
    )


def typed(command: LockCommand, task: str) -> str:
    """Return a command as it is typed in a shell; a replacement without statements has a place for them."""
    at = f"{shell(task)} {shell(command.lock)}"
    match command:
        case Force():
            return f"unshard unlock {at}"
        case Skip(shard=shard):
            return f"unshard skip {at}{_of(shard)}"
        case Replace(shard=shard, statements=texts):
            sql = " ".join(f"--sql {shell(one_line(text))}" for text in texts) or "--sql …"
            return f"unshard replace {at}{_of(shard)} {sql}"
        case DropShard(shard=shard):
            return f"unshard drop-shard {at}{_of(shard)}"
        case Retry():
            return f"unshard retry {shell(task)} --lock {shell(command.lock)}"
        case _:
            assert_never(command)


def _of(shard: Shard | None) -> str:
    return f" --shard {shell(shard_argument(shard))}" if shard else ""


def shard_argument(shard: Shard) -> str:
    """Return a shard as a command-line argument: `s1/shop_1.orders_3`."""
    return f"{shard.source}/{shard.table}"


class Unfit(Exception):
    """A field of a form with an invalid value; the text is shown to the user."""


def read_form(view: "LockFacts", values: Mapping[str, str]) -> LockCommand:
    """Return the command of a form; raises Unfit with a sentence for each problem."""
    action = values.get("action", "")
    shards = shards_of(view)
    match action:
        case "unlock":
            return Force(view.id, _owner(view, values.get("owner", "")))
        case "skip":
            return Skip(view.id, _shard(shards, values), _seq(values))
        case "replace":
            found = statements(values.get("statements", ""))
            if not found:
                raise Unfit("enter the statements to execute instead")
            return Replace(view.id, found, _shard(shards, values), _seq(values))
        case "drop-shard":
            shard = _shard(shards, values)
            if shard is None:
                raise Unfit("choose the shard to remove from the group")
            return DropShard(view.id, shard)
        case "retry":
            return Retry(view.id)
        case _:
            raise Unfit(f"there is no action {action!r}")


def form_fields(command: LockCommand) -> dict[str, str]:
    """Return the fields of the form that gives the same command."""
    match command:
        case Force(owner=owner):
            return {"action": "unlock", "owner": owner or ""}
        case Skip(shard=shard, seq=seq):
            return {"action": "skip", "shard": str(shard or ""), **_pin(seq)}
        case Replace(statements=texts, shard=shard, seq=seq):
            text = "".join(f"{statement};\n" for statement in texts)
            return {"action": "replace", "statements": text, "shard": str(shard or ""), **_pin(seq)}
        case DropShard(shard=shard):
            return {"action": "drop-shard", "shard": str(shard)}
        case Retry():
            return {"action": "retry"}
        case _:
            assert_never(command)


def _pin(seq: int | None) -> dict[str, str]:
    return {} if seq is None else {"seq": str(seq)}


def form_reason(values: Mapping[str, str]) -> str:
    """Return the operator's reason; may be empty."""
    text = one_line(values.get("reason", ""))
    if len(text) > LONGEST_REASON:
        raise Unfit(f"the reason has more than {LONGEST_REASON} characters")
    return text


def statements(text: str) -> tuple[str, ...]:
    """Return the statements of a text: each ends with `;` at the end of a line, or with the text."""
    return tuple(part for part in map(str.strip, _BETWEEN.split(text)) if part)


def shards_of(view: "LockFacts") -> tuple[Shard, ...]:
    """Return the shards that the lock knows, in order."""
    return tuple(sorted({*view.ready, *view.missing, *view.conflicts, *view.exempted}))


def _owner(view: "LockFacts", values: str) -> str | None:
    if not values:
        return None
    if values not in {shard.source for shard in view.ready}:
        raise Unfit(f"{values!r} is not a source that has the statement")
    return values


def _shard(shards: Iterable[Shard], values: Mapping[str, str]) -> Shard | None:
    wanted = values.get("shard", "")
    if not wanted:
        return None
    for shard in shards:
        if str(shard) == wanted:
            return shard
    raise Unfit(f"{wanted!r} is not a shard of this lock")


def _seq(values: Mapping[str, str]) -> int | None:
    """Return the number of the shard's DDL in the dry run."""
    text = values.get("seq", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise Unfit(f"{text!r} is not the number of a DDL")
    return int(text)
