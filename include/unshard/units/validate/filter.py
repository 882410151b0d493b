"""The condition on rows under which a target is compared with its shards, if all servers can evaluate it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unshard.adapters import tablerows
from unshard.core.full.condition import ValidationFilter, look_through, refused
from unshard.units.validate.compare import ComparedTable, Sessions, TableCheck
from unshard.units.work import Work


def condition_of(work: Work, source: str) -> str:
    """Return the condition with which a source was dumped, or will be dumped."""
    is_known = work.meta.sources.get(source) is not None
    return work.meta.conditions.get(source) if is_known else work.task.instance(source).dump.where


def validation_filter(sessions: Sessions, check: TableCheck, known: Mapping[str, str]) -> TableCheck:
    """Return the check under the condition of its sources' dumps, if it has the same meaning in all places."""
    looked = look_through(known, changed_columns(check.shards))
    if looked.condition:
        filtered = _under(check, looked.condition)
        looked = refused(looked, _messages(sessions, filtered, looked))
        check = filtered if looked.condition else check
    return replace(check, through=looked)


def changed_columns(shards: Sequence[ComparedTable]) -> set[str]:
    """Return the columns, in lower case, whose values a rule fills or changes."""
    reshaped = [place.reshaped for place in shards if place.reshaped]
    filled = {name for each in reshaped for name, _ in each.constants}
    return filled | {name for each in reshaped for name, _, _ in each.mapped}


def _under(check: TableCheck, condition: str) -> TableCheck:
    target, *shards = (replace(place, only=condition) for place in check.places)
    return replace(check, target=target, shards=tuple(shards))


def _messages(sessions: Sessions, check: TableCheck, looked: ValidationFilter) -> dict[str, str]:
    """Return the servers' messages: one place of each structure and server is asked."""
    places: dict[tuple[object, str], ComparedTable] = {}
    for place in check.places:
        places.setdefault((place.server, place.schema.shape), place)
    asked = {
        place.name: tablerows.condition_refusal(sessions.connection(place), place.table, looked.condition)
        for place in places.values()
    }
    return {name: message for name, message in asked.items() if message}
