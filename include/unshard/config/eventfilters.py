"""Binlog event filters of task and source files: their keys and rules."""

from difflib import get_close_matches

from unshard.config import checks
from unshard.config.declare import Block, Key, Values
from unshard.config.kinds import choice, text, texts, words
from unshard.core.rules.filters import DDL, DML, GROUPS, UNMATCHED, Action, EventRule, unknown_names
from unshard.core.rules.pattern import compile_pattern, compile_regex
from unshard.errors.config import BadValue, MissingKey

EVENT_FILTER = Block(
    "Binlog event filter: a block below `filters`, or an entry of it in a source file",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas to which the rule applies.", required=True),
        Key("table-pattern", text("pattern"), "Tables; without it the rule applies to the whole schemas.", ""),
        Key("events", texts(), "Names of changes, see above.", ()),
        Key(
            "sql-pattern",
            texts(text("regular expression", checks.not_empty)),
            "Regular expressions for the source's statement without comments; they ignore case and may match anywhere.",
            (),
        ),
        Key(
            "action",
            choice(words(Action)),
            "`Ignore` drops matching changes, `Do` drops all others. `Error` stops the "
            "source at a matching statement, or the target at matching rows.",
            required=True,
        ),
    ),
)


def event_rule(name: str, values: Values, case_sensitive: bool) -> EventRule:
    """Return the compiled rule; unknown names of changes are rejected."""
    whose, table = str(values.place), values["table-pattern"]
    events = tuple(event.strip().lower() for event in values["events"])
    for event in unknown_names(events):
        raise BadValue(str(values.place_of("events")), event, _wanted(event))
    for event in events:
        if event in UNMATCHED:
            values.place_of("events").warn_idle(event, "no statement of a source has this name")
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
    close = get_close_matches(event, (*DML, *GROUPS, *DDL), 1, 0.6)
    return f"the name of a change, like '{(close or ['drop column'])[0]}'; docs/config.md lists them"
