"""The scenario language: one step per line.

    # One source, two shards: rows of a migrated shard are held, then released.
    route  shard_*.t_* -> shard.t
    table  s1 shard_1.t_1, s1 shard_1.t_2 : id int, v int

    s1 shard_1.t_1 + 1, 10                    a row is inserted (the first column is the key)
    s1 shard_1.t_1 ~ 1, 11                    … updated
    s1 shard_1.t_1 - 1                        … deleted
    s1 shard_1.t_1 ddl add column c int       a shard runs a DDL
    s1 shard_1.t_1 odd add column c int       … a DDL of unknown effect, which an operator must decide
    s1 shard_1.t_3 create id int, v int       a table is created; `drop`, `truncate` likewise
    s1 shard_1.t_1 rename x.a, x.b to x.c     tables are renamed, several in one statement
    s1 shard_1.t_1 ddl drop column c, rename to shard_1.t_2
    s1 shard_1 drop schema                    all tables of a schema are dropped
    refuse, accept                            from here on the target refuses DDL, or accepts it again
    unlock shard.t                            an operator forces the open lock
    skip shard.t                              … skips its DDL, `skip shard.t s1 shard_1.t_1` that of one shard
    replace shard.t : add column c int | drop column v
    replace shard.t s1 shard_1.t_1 : add column c int
    drop shard.t s1 shard_1.t_1               … removes a shard from the group
    restart                                   all processes are killed, at every point in turn

    => lock shard.t waiting s1 shard_1.t_2    state of the open lock and its missing (or conflicting) shards
    => nolock shard.t
    => held 1                                 total number of held rows
    => ddl add column c int                   DDLs executed since the last such line, `|` between
    => rows shard.t 1,NULL | 2,20             in any order
    => error US-5003                          a source stops with this code
    => union                                  every target equals the union of its shards

Before each `=>` line everything runs until nothing changes any more. A scenario ends with an implicit `=> union`
unless its last line is another claim about rows or an error.
"""

import re
from dataclasses import dataclass
from pathlib import Path

CHANGE = re.compile(
    r"(?P<source>\w+) (?P<table>\w+\.\w+) (?P<op>[+~-]|ddl|odd|create|drop|truncate|rename)(?: (?P<body>.*))?"
)
DROP_SCHEMA = re.compile(r"(?P<source>\w+) (?P<schema>\w+) drop schema")
ORDERS = ("unlock", "skip", "replace", "drop", "refuse", "accept")


@dataclass(frozen=True, slots=True)
class Change:
    """A change on a source."""

    source: str
    table: str
    op: str
    body: str


@dataclass(frozen=True, slots=True)
class LockCommand:
    """An action of an operator or of the target."""

    what: str
    body: str


@dataclass(frozen=True, slots=True)
class Expect:
    """A condition that must be true when nothing changes any more."""

    what: str
    body: str


@dataclass(frozen=True, slots=True)
class Restart:
    """All processes are killed."""


Step = Change | LockCommand | Expect | Restart


@dataclass(frozen=True, slots=True)
class Scenario:
    """A case: the tables at the start, and the steps."""

    title: str
    routes: tuple[tuple[str, str], ...]
    tables: tuple[tuple[str, str, str], ...]
    """Source, table, columns."""
    steps: tuple[Step, ...]


def parse(path: Path) -> Scenario:
    """Read a scenario file; raises SyntaxError, which names the line that is not a step."""
    return parse_text(path.read_text(), path.name)


def parse_text(text: str, name: str = "text") -> Scenario:
    """Read a scenario."""
    title, *lines = (" ".join(line.split()) for line in text.splitlines())
    routes: list[tuple[str, str]] = []
    tables: list[tuple[str, str, str]] = []
    steps: list[Step] = []
    for number, line in enumerate(lines, 2):
        word, _, rest = line.partition(" ")
        if not line or word.startswith("#"):
            continue
        if word == "route":
            pattern, _, target = rest.partition(" -> ")
            routes.append((pattern, target))
        elif word == "table":
            names, _, columns = rest.partition(" : ")
            tables += [(*one.strip().split(" "), columns) for one in names.split(",")]  # type: ignore[misc]
        else:
            steps.append(_step(word, rest, line, f"{name}:{number}"))
    return Scenario(title.lstrip("# "), tuple(routes), tuple(tables), tuple(steps))


def _step(word: str, rest: str, line: str, place: str) -> Step:
    if word == "=>":
        what, _, body = rest.partition(" ")
        return Expect(what, body)
    if word == "restart":
        return Restart()
    if word in ORDERS:
        return LockCommand(word, rest)
    if match := CHANGE.fullmatch(line):
        return Change(match["source"], match["table"], match["op"], match["body"] or "")
    if match := DROP_SCHEMA.fullmatch(line):
        return Change(match["source"], f"{match['schema']}.", "drop schema", "")
    raise SyntaxError(f"{place}: {line!r}")
