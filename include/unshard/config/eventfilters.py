"""Binlog event filters of task and source files: their keys, and the rules that they say."""

from difflib import get_close_matches

from unshard.config import checks
from unshard.config.declare import Block, Key, Values
from unshard.config.kinds import choice, text, texts, words
from unshard.core.eventfilter import NAMES, OF_TIDB, Action, EventRule, unknown_names
from unshard.core.pattern import compile_pattern, compile_regex
from unshard.errors.config import BadValue, MissingKey

EVENT_FILTER = Block(
    "Binlog event filter: a block below `filters`, or an entry of it in a source file",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas that the rule is for.", required=True),
        Key("table-pattern", text("pattern"), "Tables; without it the rule is for all of these schemas.", ""),
        Key("events", texts(), "Names of changes, see above.", ()),
        Key("sql-pattern", texts(text("regular expression", checks.not_empty)), "Regular expressions, found in the "
            "statement as the source wrote it, without comments; case does not matter.", ()),
        Key("action", choice(words(Action)), "`Ignore` leaves out what matches, `Do` what does not, `Error` stops the "
            "source, or for rows their target, at what matches.", required=True),
    ),
)  # fmt: skip


def event_rule(name: str, values: Values, case_sensitive: bool) -> EventRule:
    """Return the compiled rule; names that no change has are refused."""
    whose, table = str(values.place), values["table-pattern"]
    events = tuple(event.strip().lower() for event in values["events"])
    for event in unknown_names(events):
        raise BadValue(str(values.place_of("events")), event, _wanted(event))
    if not events and not values["sql-pattern"]:
        raise MissingKey(whose, "events", "without it and sql-pattern the rule matches nothing")
    sql = tuple(compile_regex(each, False, str(values.place_of("sql-pattern"))) for each in values["sql-pattern"])
    return EventRule(
        name,
        compile_pattern(values["schema-pattern"], case_sensitive, whose),
        compile_pattern(table, case_sensitive, whose) if table else None,
        events,
        sql,
        values["action"],
    )


def _wanted(event: str) -> str:
    if event in OF_TIDB:
        return "a name of what a source can do: only TiDB has this statement, so the rule would match nothing"
    close = get_close_matches(event, NAMES, 1, 0.6)
    return f"the name of a change, like '{(close or ['drop column'])[0]}'; docs/config.md lists them"
