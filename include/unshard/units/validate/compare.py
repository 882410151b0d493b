"""Compare one target table with the union of its shards: checksums by range, narrowed to the keys.

The servers do the work: each returns one count and one sum per range and table. Ranges with different sums are halved
until the rows are few enough to be fetched as (key, hash) and compared here. A table without a key that all servers
sort alike is compared whole, and narrowed by the first digits of the row hashes instead of by ranges of its key.

The comparison only reads, and each statement sees its own moment. Compare servers without writes, or check a difference
again while its table is being written.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, tablerows
from unshard.core.ddl.columnnames import Names, with_names
from unshard.core.join.group import Member
from unshard.core.join.joined import JoinedTarget
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.rules.filters import ALL_ROWS, ValidationFilter
from unshard.core.rules.reshaping import ReshapedShard, Reshaping, named, seen
from unshard.core.sql.keyrange import NEVER, KeyRange
from unshard.core.validate import checksum
from unshard.core.validate.checksum import MINIMAL_PACKET, PLACE_TARGET, Comparison
from unshard.core.validate.comparedrows import compared_rows
from unshard.core.validate.rowdifferences import Difference, DifferenceKind, Rows, explain
from unshard.errors.rows import PacketTooSmall

LEAF_ROWS = 4_000
"""Rows of target and shards together that are fetched instead of halved again."""
TABLES_PER_STATEMENT = 50
BUCKETS = 2
"""Hexadecimal digits of the hash that name a bucket."""


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A compared table: a shard, or the target."""

    name: str
    server: Server
    table: TableId
    schema: TableSchema
    reshaped: ReshapedShard | None = None
    """The rows of a shard whose names fill or change columns."""
    only: str = ""
    """The condition on rows to compare, over the columns of the table itself; empty: all rows."""

    @property
    def seen(self) -> ReshapedShard:
        return replace(self.reshaped or ReshapedShard(self.schema, mysql.table_name(self.table)), only=self.only)


@dataclass(frozen=True, slots=True)
class TableCheck:
    """One target table, its shards, and how they are compared; a value that any process can receive."""

    target: ComparedTable
    shards: tuple[ComparedTable, ...]
    comparison: Comparison
    unseen: tuple[str, ...] = ()
    """Shards of the task that their source does not show; no union contains them."""
    through: ValidationFilter = ALL_ROWS

    @property
    def places(self) -> tuple[ComparedTable, ...]:
        return (self.target, *self.shards)

    @property
    def by_server(self) -> tuple[tuple[ComparedTable, ...], ...]:
        """The places, grouped by the server that can answer for them in one statement."""
        groups: dict[tuple[str, int, str], list[ComparedTable]] = {}
        for place in self.places:
            groups.setdefault((place.server.host, place.server.port, place.server.user), []).append(place)
        return tuple(map(tuple, groups.values()))


@dataclass(frozen=True, slots=True)
class Sum:
    """Row count of a set and the sum of the row hashes."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.rows + other.rows, self.total + other.total)


@dataclass(slots=True)
class Sessions:
    """One connection per thread and server, opened at first use, all closed at the end."""

    _opened: list[Connection] = field(default_factory=list)
    _local: threading.local = field(default_factory=threading.local)

    def __enter__(self) -> "Sessions":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._opened:
            connection.close()

    def query(self, place: ComparedTable, sql: str) -> list[tuple[bytes | None, ...]]:
        """Run a statement on the place's server; values are returned as the bytes that the server prints."""
        return mysql.query(self.connection(place), sql)

    def connection(self, place: ComparedTable) -> Connection:
        """Return this thread's connection to the place's server."""
        own: dict[tuple[Server, bool], Connection] = self._local.__dict__.setdefault("connections", {})
        wanted = place.server, bool(place.only)
        if wanted not in own:
            connection = mysql.connect_raw(place.server, _where(place))
            self._opened.append(connection)
            serverstate.allow_all_values(connection)
            if (packet := serverstate.packet_bytes(connection)) < MINIMAL_PACKET:
                raise PacketTooSmall(str(place.server), packet, MINIMAL_PACKET)
            if place.only:
                tablerows.prepare_condition(connection)
            own[wanted] = connection
        return own[wanted]


def reshaped_place(shard: ComparedTable, target: ComparedTable, reshaping: Reshaping) -> ComparedTable:
    """Return the place with the columns that the shard's names fill or change for the target."""
    if not reshaping:
        return shard
    found = seen(shard.name, shard.table, shard.schema, target.table, target.schema, reshaping)
    return replace(shard, schema=found.structure, reshaped=replace(found, table=shard.seen.table))


def named_place(shard: ComparedTable, names: Names) -> ComparedTable:
    """Return the place with the target's names of its columns."""
    if not names:
        return shard
    found = named(shard.table, with_names(shard.schema, names))
    return replace(shard, schema=found.structure, reshaped=found)


def joined_place(shard: ComparedTable, target: ComparedTable, joined: JoinedTarget, member: Member) -> ComparedTable:
    """Return the place with the columns of a target that follows the join of its shards."""
    found = compared_rows(shard.table, shard.schema, target.schema, joined.names, member, joined.group.fills)
    return replace(shard, schema=found.structure, reshaped=found)


def _where(place: ComparedTable) -> str:
    return PLACE_TARGET if place.name == PLACE_TARGET else f"source {place.name.split()[0]}"


def ranges(sessions: Sessions, check: TableCheck, rows: int) -> Iterator[KeyRange]:
    """Yield ranges of about `rows` target rows each, which together cover every possible key."""
    lower = None
    while check.comparison.ranged and (upper := _nth(sessions, check, check.target, KeyRange(lower), rows)) is not None:
        yield KeyRange(lower, upper)
        lower = upper
    yield KeyRange(lower)


def checksums(sessions: Sessions, check: TableCheck, places: Sequence[ComparedTable], span: KeyRange) -> dict[str, Sum]:
    """Return count and sum of the range in each of the places, which are on one server."""
    found = {place.name: Sum() for place in places}
    conditions = ((place, _condition(check, place, span)) for place in places)
    asked = [(place, where) for place, where in conditions if where != NEVER]
    for first in range(0, len(asked), TABLES_PER_STATEMENT):
        some = asked[first : first + TABLES_PER_STATEMENT]
        sql = tablerows.sums([(_hash(check, place), place.seen.where(where)) for place, where in some])
        for number, count, total in sessions.query(some[0][0], sql):
            found[some[int(number or 0)][0].name] = Sum(int(count or 0), int(total or 0))
    return found


def agree(sums: Mapping[str, Sum]) -> bool:
    """Whether the shards' sums add up to the target's sum."""
    return union(sums) == sums[PLACE_TARGET]


def union(sums: Mapping[str, Sum]) -> Sum:
    """Return the count and sum of all shards together."""
    return sum((each for place, each in sums.items() if place != PLACE_TARGET), Sum())


def narrow(sessions: Sessions, check: TableCheck, span: KeyRange, limit: int) -> list[Difference]:
    """Return the differing keys of a range whose sums differ, at most `limit` and a few."""
    if not check.comparison.ranged:
        return _narrow_by_hash(sessions, check, limit)
    found: list[Difference] = []
    waiting = [span]
    while waiting and len(found) < limit:
        part = waiting.pop()
        sums = _all_checksums(sessions, check, part)
        if agree(sums):
            continue
        halves = _halves(sessions, check, part, sums)
        if halves:
            waiting.extend(reversed(halves))
        else:
            rows = {p.name: _rows(sessions, check, p, p.seen.where(_condition(check, p, part))) for p in check.places}
            found.extend(explain(rows.pop(PLACE_TARGET), rows, keyed=True))
    return found


def compare_range(
    sessions: Sessions, check: TableCheck, span: KeyRange, limit: int
) -> tuple[dict[str, Sum], list[Difference]]:
    """Compare one range completely in this thread."""
    sums = _all_checksums(sessions, check, span)
    return sums, [] if agree(sums) else narrow(sessions, check, span, limit)


@dataclass(frozen=True, slots=True)
class RangeComparison:
    """`compare_range` as a function over text, for a Spark task."""

    check: TableCheck
    limit: int

    def __call__(self, span: str) -> Iterator[str]:
        """Compare the range in the text `span`; yield the one result as text."""
        with Sessions() as sessions:
            sums, differences = compare_range(sessions, self.check, read_range(span), self.limit)
        yield json.dumps(
            {
                "sums": {place: [each.rows, str(each.total)] for place, each in sums.items()},
                "differences": [[each.kind, each.key, each.shards, each.count] for each in differences],
            }
        )


def write_range(span: KeyRange) -> str:
    """Return a range as text."""
    bounds = (span.lower, span.upper)
    return json.dumps([None if bound is None else [value.hex() for value in bound] for bound in bounds])


def read_range(text: str) -> KeyRange:
    """Return the range of a text from `write_range`."""
    lower, upper = (None if bound is None else tuple(map(bytes.fromhex, bound)) for bound in json.loads(text))
    return KeyRange(lower, upper)


def read_comparison(text: str) -> tuple[dict[str, Sum], tuple[Difference, ...]]:
    """Read the result of a `RangeComparison`."""
    body = json.loads(text)
    sums = {place: Sum(rows, int(total)) for place, (rows, total) in body["sums"].items()}
    return sums, tuple(Difference(DifferenceKind(k), tuple(key), tuple(s), n) for k, key, s, n in body["differences"])


def _all_checksums(sessions: Sessions, check: TableCheck, span: KeyRange) -> dict[str, Sum]:
    found: dict[str, Sum] = {}
    for places in check.by_server:
        found |= checksums(sessions, check, places, span)
    return found


def _halves(sessions: Sessions, check: TableCheck, span: KeyRange, sums: Mapping[str, Sum]) -> tuple[KeyRange, ...]:
    """Cut the range at the middle key of the place with most rows; empty if the rows are few or cannot be cut."""
    if sum(each.rows for each in sums.values()) <= LEAF_ROWS:
        return ()
    fullest = max(check.places, key=lambda place: sums[place.name].rows)
    middle = _nth(sessions, check, fullest, span, max(1, sums[fullest.name].rows // 2))
    if middle is None or middle == span.upper:
        return ()
    return KeyRange(span.lower, middle), KeyRange(middle, span.upper)


def _nth(
    sessions: Sessions, check: TableCheck, place: ComparedTable, span: KeyRange, number: int
) -> tuple[bytes, ...] | None:
    """Return the key of the row with that number in the range; None if it has fewer rows."""
    names = [place.schema.column(name).name for name in check.comparison.key]
    found = sessions.query(place, tablerows.nth_key(names, place.seen.where(_condition(check, place, span)), number))
    return tuple(value for value in found[0] if value is not None) if found else None


def _narrow_by_hash(sessions: Sessions, check: TableCheck, limit: int) -> list[Difference]:
    hashes: set[str] = set()
    for bucket in _differing_buckets(sessions, check):
        hashes |= _differing_hashes(sessions, check, bucket)
        if len(hashes) >= limit * 2:
            break
    if not hashes:
        return []  # the tables have changed meanwhile and are equal
    rows = {
        place.name: _rows(
            sessions, check, place, place.seen.where(outside=tablerows.with_hashes(_hash(check, place), hashes))
        )
        for place in check.places
    }
    return list(explain(rows.pop(PLACE_TARGET), rows, keyed=bool(check.comparison.key)))


def _differing_buckets(sessions: Sessions, check: TableCheck) -> list[str]:
    counts: dict[str, dict[str, Sum]] = {}
    for place in check.places:
        sql = tablerows.bucket_sums(_hash(check, place), BUCKETS, place.seen.rows)
        for bucket, count, total in sessions.query(place, sql):
            counts.setdefault(_text(bucket), {})[place.name] = Sum(int(count or 0), int(total or 0))
    return sorted(bucket for bucket, sums in counts.items() if not agree({PLACE_TARGET: Sum(), **sums}))


def _differing_hashes(sessions: Sessions, check: TableCheck, bucket: str) -> set[str]:
    balance: Counter[str] = Counter()
    for place in check.places:
        hashed = _hash(check, place)
        sql = tablerows.hash_counts(hashed, place.seen.where(outside=tablerows.in_bucket(hashed, bucket)))
        sign = -1 if place.name == PLACE_TARGET else 1
        for digest, count in sessions.query(place, sql):
            balance[_text(digest)] += sign * int(count or 0)
    return {digest for digest, rest in balance.items() if rest}


def _rows(sessions: Sessions, check: TableCheck, place: ComparedTable, rows: str) -> Rows:
    """Fetch keys and hashes of the rows of a FROM clause; without a key, all columns instead."""
    by_name = {form.column.lower(): form for form in check.comparison.forms}
    forms = [by_name[name.lower()] for name in check.comparison.key] or check.comparison.forms
    columns = [checksum.shown(form, place.schema.column(form.column)) for form in forms]
    sql = tablerows.hashes_and_columns(_hash(check, place), columns, rows)
    return Counter(
        (tuple(None if value is None else _text(value) for value in key), _text(digest))
        for digest, *key in sessions.query(place, sql)
    )


def _hash(check: TableCheck, place: ComparedTable) -> str:
    return checksum.row_hash(check.comparison.forms, place.schema)


def _condition(check: TableCheck, place: ComparedTable, span: KeyRange) -> str:
    columns = [place.schema.column(name) for name in check.comparison.key] if check.comparison.ranged else []
    return place.seen.within(columns, span)


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
