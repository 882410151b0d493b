"""The privileges of an account, read from the lines of SHOW GRANTS.

This covers privileges that cannot be tried without side effects. Privileges of roles count only if the server lists
them. A line that cannot be parsed grants nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

_GRANT = re.compile(r"GRANT (?P<privileges>.+?) ON (?:TABLE )?(?P<scope>\S+\.\S+) TO ", re.IGNORECASE)
_NAME = r"(?:`(?:[^`]|``)*`|[^.`]+)"
_SCOPE = re.compile(rf"(?P<schema>{_NAME})\.(?P<table>{_NAME})\Z")
ALIASES = {
    "REPLICATION CLIENT": frozenset({"BINLOG MONITOR"}),
    "REPLICATION SLAVE": frozenset({"REPLICATION REPLICA"}),
    "BINLOG MONITOR": frozenset({"REPLICATION CLIENT"}),
}
"""Other names of the same privilege on other servers."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on one scope; `%` and `_` of the schema are wildcards."""

    privileges: frozenset[str]
    schema: str
    table: str

    def allows(self, privilege: str, schema: str, table: str) -> bool:
        """Whether this grant contains the privilege on the table (`*`: on all tables)."""
        wanted = {privilege, "ALL PRIVILEGES", "ALL"} | ALIASES.get(privilege, frozenset())
        if not wanted & self.privileges:
            return False
        return _schema_matches(self.schema, schema) and self.table in ("*", table)


def parse(lines: Iterable[str]) -> tuple[Grant, ...]:
    """Parse the lines that SHOW GRANTS returns."""
    return tuple(grant for line in lines if (grant := _parse(line)) is not None)


def missing(grants: Iterable[Grant], privileges: Iterable[str], schema: str = "*", table: str = "*") -> tuple[str, ...]:
    """Return the privileges that no grant contains for the scope."""
    known = tuple(grants)
    return tuple(each for each in privileges if not any(grant.allows(each, schema, table) for grant in known))


def _parse(line: str) -> Grant | None:
    found = _GRANT.match(line)
    scope = _SCOPE.match(found["scope"]) if found else None
    if found is None or scope is None:
        return None
    names = (name.strip().upper() for name in re.sub(r"\([^)]*\)", "(columns)", found["privileges"]).split(","))
    return Grant(frozenset(names), _bare(scope["schema"]), _bare(scope["table"]))


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _schema_matches(pattern: str, schema: str) -> bool:
    if pattern == "*":
        return True
    if schema == "*":
        return False
    return fnmatchcase(schema, _glob(pattern))


def _glob(pattern: str) -> str:
    r"""Convert the server's wildcards to those of fnmatch: `%` any text, `_` any character, `\_` an underscore."""
    translated = []
    escaped = False
    for character in pattern:
        if character == "\\" and not escaped:
            escaped = True
            continue
        if not escaped and character in "%_":
            translated.append("*" if character == "%" else "?")
        else:
            translated.append(f"[{character}]" if character in "*?[" else character)
        escaped = False
    return "".join(translated)
