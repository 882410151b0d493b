"""Turn the fields of a form into a command; raises Unfit with a sentence for each problem."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, assert_never

from unshard.core.ddl.lockcommands import DropShard, Force, LockCommand, Replace, Retry, Skip

if TYPE_CHECKING:
    from unshard.core.model import Shard
    from unshard.core.window.suspension import SuspendedTarget
    from unshard.units.ddl.scene import LockFacts

LONGEST_REASON = 1000
PAUSE_ACTIONS = ("pause", "resume")
_BETWEEN = re.compile(r";[ \t\r]*(?:\n|\Z)")


class Unfit(Exception):
    """A field with an invalid value; the text is shown to the user."""


def order(view: "LockFacts", values: Mapping[str, str]) -> LockCommand:
    """Return the command of a form."""
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


def pause(values: Mapping[str, str]) -> bool:
    """Return whether a form asks to pause the task (or to resume it)."""
    action = values.get("action", "")
    if action not in PAUSE_ACTIONS:
        raise Unfit(f"there is no action {action!r}")
    return action == "pause"


def stop_name(stop: "SuspendedTarget") -> str:
    """Return the name of a suspension in forms; a later suspension of the same target has another name."""
    return f"{stop.window} {stop.source} {stop.target}"


def stops(known: "Iterable[SuspendedTarget]", values: Mapping[str, str]) -> "tuple[SuspendedTarget, ...]":
    """Return the suspensions to lift: the one in the form, or all if it names none."""
    wanted = values.get("stop", "")
    found = tuple(stop for stop in known if wanted in ("", stop_name(stop)))
    if not found:
        raise Unfit("that target continues already, or is suspended again" if wanted else "no target is suspended")
    return found


def fields(values: LockCommand) -> dict[str, str]:
    """Return the fields that produce the same command."""
    match values:
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
            assert_never(values)


def _pin(seq: int | None) -> dict[str, str]:
    return {} if seq is None else {"seq": str(seq)}


def reason(values: Mapping[str, str]) -> str:
    """Return the operator's reason; may be empty."""
    text = " ".join(values.get("reason", "").split())
    if len(text) > LONGEST_REASON:
        raise Unfit(f"the reason has more than {LONGEST_REASON} characters")
    return text


def statements(text: str) -> tuple[str, ...]:
    """Return the statements of a text: each ends with `;` at the end of a line, or with the text."""
    return tuple(part for part in map(str.strip, _BETWEEN.split(text)) if part)


def shards_of(view: "LockFacts") -> tuple["Shard", ...]:
    """Return the shards that the lock knows, in order."""
    return tuple(sorted({*view.ready, *view.missing, *view.conflicts, *view.exempted}))


def _owner(view: "LockFacts", values: str) -> str | None:
    if not values:
        return None
    if values not in {shard.source for shard in view.ready}:
        raise Unfit(f"{values!r} is not a source that has the statement")
    return values


def _shard(shards: Iterable["Shard"], values: Mapping[str, str]) -> "Shard | None":
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
