"""From the fields of a form to an order, with everything that can be wrong named in a sentence."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, assert_never

from unshard.core.orders import DropShard, Force, Order, Replace, Retry, Skip

if TYPE_CHECKING:
    from unshard.core.model import Shard
    from unshard.core.stops import Stop
    from unshard.units.coordinate import LockView

LONGEST_REASON = 1000
HALTS = ("pause", "resume")
_BETWEEN = re.compile(r";[ \t\r]*(?:\n|\Z)")


class Unfit(Exception):
    """A field that cannot be taken; the words are for the person who filled it in."""


def order(view: "LockView", given: Mapping[str, str]) -> Order:
    """Return the order that a form asks for."""
    action = given.get("action", "")
    shards = shards_of(view)
    match action:
        case "unlock":
            return Force(view.id, _owner(view, given.get("owner", "")))
        case "skip":
            return Skip(view.id, _shard(shards, given), _seq(given))
        case "replace":
            found = statements(given.get("statements", ""))
            if not found:
                raise Unfit("enter the statements to execute instead")
            return Replace(view.id, found, _shard(shards, given), _seq(given))
        case "drop-shard":
            shard = _shard(shards, given)
            if shard is None:
                raise Unfit("choose the shard that leaves the group")
            return DropShard(view.id, shard)
        case "retry":
            return Retry(view.id)
        case _:
            raise Unfit(f"there is no action {action!r}")


def halt(given: Mapping[str, str]) -> bool:
    """Return whether a form asks to pause the task (or to resume it)."""
    action = given.get("action", "")
    if action not in HALTS:
        raise Unfit(f"there is no action {action!r}")
    return action == "pause"


def stop_name(stop: "Stop") -> str:
    """Return what a form calls a stop; the same target that stops anew later is another one."""
    return f"{stop.window} {stop.source} {stop.target}"


def stops(known: "Iterable[Stop]", given: Mapping[str, str]) -> "tuple[Stop, ...]":
    """Return which stops a form asks to lift: one, or all if it names none."""
    wanted = given.get("stop", "")
    found = tuple(stop for stop in known if wanted in ("", stop_name(stop)))
    if not found:
        raise Unfit("that target goes on already, or has stopped anew" if wanted else "no target is stopped")
    return found


def fields(given: Order) -> dict[str, str]:
    """Return the fields that make the same order again."""
    match given:
        case Force(owner=owner):
            return {"action": "unlock", "owner": owner or ""}
        case Skip(shard=shard, seq=seq):
            return {"action": "skip", "shard": str(shard or ""), **_pin(seq)}
        case Replace(statements=said, shard=shard, seq=seq):
            text = "".join(f"{statement};\n" for statement in said)
            return {"action": "replace", "statements": text, "shard": str(shard or ""), **_pin(seq)}
        case DropShard(shard=shard):
            return {"action": "drop-shard", "shard": str(shard)}
        case Retry():
            return {"action": "retry"}
        case _:
            assert_never(given)


def _pin(seq: int | None) -> dict[str, str]:
    return {} if seq is None else {"seq": str(seq)}


def reason(given: Mapping[str, str]) -> str:
    """Return why, in the operator's words; may be empty."""
    text = " ".join(given.get("reason", "").split())
    if len(text) > LONGEST_REASON:
        raise Unfit(f"the reason has more than {LONGEST_REASON} characters")
    return text


def statements(text: str) -> tuple[str, ...]:
    """Return the statements of a text: each ends with `;` at the end of a line, or with the text."""
    return tuple(part for part in map(str.strip, _BETWEEN.split(text)) if part)


def shards_of(view: "LockView") -> tuple["Shard", ...]:
    """Return the shards that the lock knows, in order."""
    return tuple(sorted({*view.ready, *view.missing, *view.conflicts, *view.excused}))


def _owner(view: "LockView", given: str) -> str | None:
    if not given:
        return None
    if given not in {shard.source for shard in view.ready}:
        raise Unfit(f"{given!r} is no source that has the statement")
    return given


def _shard(shards: Iterable["Shard"], given: Mapping[str, str]) -> "Shard | None":
    wanted = given.get("shard", "")
    if not wanted:
        return None
    for shard in shards:
        if str(shard) == wanted:
            return shard
    raise Unfit(f"{wanted!r} is no shard of this lock")


def _seq(given: Mapping[str, str]) -> int | None:
    """Return the number of the shard's DDL that the dry run was about."""
    text = given.get("seq", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise Unfit(f"{text!r} is no number of a DDL")
    return int(text)
