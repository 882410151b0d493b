"""Through which condition a target is compared with its shards, once the servers have said that they can tell."""

from collections.abc import Mapping
from dataclasses import replace

from unshard.adapters import condition as conditions
from unshard.core.dumpcondition import LookedThrough, look_through, refused
from unshard.units.compare import Place, Sessions, TableCheck
from unshard.units.work import Work


def condition_of(work: Work, source: str) -> str:
    """Return the condition by which a source was dumped; before that, by which it would be."""
    is_known = work.meta.sources.get(source) is not None
    return work.meta.conditions.get(source) if is_known else work.task.instance(source).dump.where


def looked_through(sessions: Sessions, check: TableCheck, known: Mapping[str, str]) -> TableCheck:
    """Let the check compare rows under the condition of its sources' dumps, where that says the same in all places."""
    looked = look_through(known, _changed(check))
    if looked.condition:
        under = _under(check, looked.condition)
        looked = refused(looked, _words(sessions, under, looked))
        check = under if looked.condition else check
    return replace(check, through=looked)


def _changed(check: TableCheck) -> set[str]:
    """Return the columns whose values a rule fills or changes."""
    reshaped = [place.reshaped for place in check.shards if place.reshaped]
    filled = {name for each in reshaped for name, _ in each.constants}
    return filled | {name for each in reshaped for name, _, _ in each.mapped}


def _under(check: TableCheck, condition: str) -> TableCheck:
    target, *shards = (replace(place, only=condition) for place in check.places)
    return replace(check, target=target, shards=tuple(shards))


def _words(sessions: Sessions, check: TableCheck, looked: LookedThrough) -> dict[str, str]:
    """Ask one place of each structure and server."""
    places: dict[tuple[object, str], Place] = {}
    for place in check.places:
        places.setdefault((place.server, place.schema.shape), place)
    asked = {
        place.name: conditions.refusal(sessions.connection(place), place.table, looked.condition)
        for place in places.values()
    }
    return {name: words for name, words in asked.items() if words}
