"""Compare ranges of a table with its shards: the servers sum the rows, and ranges that differ are narrowed to keys.

Each server returns one count and one sum per range and table. Ranges with different sums are halved until the rows are
few enough to be fetched as (key, hash) and compared here. A table without a key that all servers sort alike is compared
whole, and narrowed by the first digits of the row hashes instead of by ranges of its key.
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, structures, tablerows
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.rules.filters import ALL_ROWS, ValidationFilter
from unshard.core.rules.reshaping import ReshapedShard
from unshard.core.sql.keyrange import NEVER, KeyRange, read_bound, write_bound
from unshard.core.validate import checksum
from unshard.core.validate.checksum import MINIMAL_PACKET, PLACE_TARGET, Comparison
from unshard.core.validate.pace import rows_of_next_range
from unshard.core.validate.rowdifferences import RowDifference, Rows, explain
from unshard.errors.rows import PacketTooSmall
from unshard.units.validate.pacing import Resting

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
    def tables_by_source(self) -> dict[str, list[TableId]]:
        found: defaultdict[str, list[TableId]] = defaultdict(list)
        for place in self.shards:
            found[place.name.split()[0]].append(place.table)
        return dict(found)

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


ComparedRange = tuple[KeyRange, Mapping[str, Sum]]


@dataclass(slots=True)
class Sessions:
    """One connection per thread and server, opened at first use, all closed at the end."""

    _opened: list[Connection] = field(default_factory=list)
    _local: threading.local = field(default_factory=threading.local)
    row_wait: int = 3
    """Seconds that `committed_rows` waits for a row that another transaction has changed."""

    def __enter__(self) -> "Sessions":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._opened:
            connection.close()

    def query(self, place: ComparedTable, sql: str) -> list[tuple[bytes | None, ...]]:
        """Run a statement on the place's server; values are returned as the bytes that the server prints."""
        return mysql.query(self.connection(place), sql)

    def committed_rows(self, place: ComparedTable, sql: str) -> list[tuple[bytes | None, ...]]:
        """Run a statement that waits for the transactions that change its rows.

        A binlog has a transaction a moment before the server shows it. This statement sees all that the binlog has.
        """
        connection = self.connection(place, waits=True)
        mysql.begin(connection)
        try:
            return mysql.query(connection, sql)
        finally:
            mysql.rollback(connection)

    def connection(self, place: ComparedTable, *, waits: bool = False) -> Connection:
        """Return this thread's connection to the place's server."""
        own: dict[tuple[Server, bool, bool], Connection] = self._local.__dict__.setdefault("connections", {})
        wanted = place.server, bool(place.only), waits
        if wanted not in own:
            connection = mysql.connect_raw(place.server, _where(place))
            self._opened.append(connection)
            serverstate.allow_all_values(connection)
            if (packet := serverstate.packet_bytes(connection)) < MINIMAL_PACKET:
                raise PacketTooSmall(str(place.server), packet, MINIMAL_PACKET)
            if place.only:
                tablerows.prepare_condition(connection)
            if waits:
                serverstate.lock_what_is_read(connection)
                serverstate.limit_row_wait(connection, self.row_wait)
            own[wanted] = connection
        return own[wanted]


def _where(place: ComparedTable) -> str:
    return PLACE_TARGET if place.name == PLACE_TARGET else f"source {place.name.split()[0]}"


def ranges(
    sessions: Sessions, check: TableCheck, size: Callable[[], int], spans: Iterable[KeyRange] = (KeyRange(),)
) -> Iterator[KeyRange]:
    """Divide ranges into ranges of about `size()` target rows each; one with an end may have up to twice as many."""
    for span in spans:
        rest = span
        while check.comparison.ranged:
            rows = size()
            if rest.upper is not None and _nth(sessions, check, check.target, rest, 2 * rows) is None:
                break
            upper = _nth(sessions, check, check.target, rest, rows)
            if upper is None or upper == rest.upper:
                break
            yield KeyRange(rest.lower, upper)
            rest = KeyRange(upper, rest.upper)
        yield rest


def checksums(sessions: Sessions, check: TableCheck, places: Sequence[ComparedTable], span: KeyRange) -> dict[str, Sum]:
    """Return count and sum of the range in each of the places, which are on one server."""
    found = {place.name: Sum() for place in places}
    conditions = ((place, _condition(check, place, span)) for place in places)
    forms = check.comparison.forms
    asked = [(place, where) for place, where in conditions if where != NEVER]
    for first in range(0, len(asked), TABLES_PER_STATEMENT):
        some = asked[first : first + TABLES_PER_STATEMENT]
        hashed = ((checksum.row_hash(forms, place.schema), place.seen.where(where)) for place, where in some)
        sql = tablerows.sums([*hashed])
        for number, count, total in sessions.query(some[0][0], sql):
            found[some[int(number or 0)][0].name] = Sum(int(count or 0), int(total or 0))
    return found


def agree(sums: Mapping[str, Sum]) -> bool:
    """Whether the shards' sums add up to the target's sum."""
    return union(sums) == sums[PLACE_TARGET]


def union(sums: Mapping[str, Sum]) -> Sum:
    """Return the count and sum of all shards together."""
    return sum((each for place, each in sums.items() if place != PLACE_TARGET), Sum())


def narrow(sessions: Sessions, check: TableCheck, span: KeyRange, limit: int) -> list[RowDifference]:
    """Return the differing keys of a range whose sums differ, at most `limit` and a few."""
    if not check.comparison.ranged:
        return _narrow_by_hash(sessions, check, limit)
    found: list[RowDifference] = []
    waiting = [span]
    while waiting and len(found) < limit:
        part = waiting.pop()
        sums = all_checksums(sessions, check, part)
        if agree(sums):
            continue
        halves = _halves(sessions, check, part, sums)
        if halves:
            waiting.extend(reversed(halves))
        else:
            # First the target: what it has of a key, the shards have had before.
            rows = {p.name: _rows(sessions, check, p, p.seen.where(_condition(check, p, part))) for p in check.places}
            found.extend(explain(rows.pop(PLACE_TARGET), rows, keyed=True))
    return found


@dataclass(frozen=True, slots=True)
class RangeSums:
    """Sums of a range as a function over text, for a Spark task."""

    check: TableCheck

    def __call__(self, span: str) -> Iterator[str]:
        """Compare the range in the text `span`; yield the one result as text."""
        with Sessions() as sessions:
            sums = all_checksums(sessions, self.check, read_range(span))
        yield json.dumps([span, {place: [each.rows, str(each.total)] for place, each in sums.items()}])


def write_range(span: KeyRange) -> str:
    """Return a range as text."""
    return json.dumps([write_bound(span.lower), write_bound(span.upper)])


def read_range(text: str) -> KeyRange:
    """Return the range of a text from `write_range`."""
    return KeyRange(*map(read_bound, json.loads(text)))


def read_sums(text: str) -> ComparedRange:
    """Read the result of a `RangeSums`."""
    span, sums = json.loads(text)
    return read_range(span), {place: Sum(rows, int(total)) for place, (rows, total) in sums.items()}


def all_checksums(sessions: Sessions, check: TableCheck, span: KeyRange) -> dict[str, Sum]:
    """Return count and sum of the range in all places."""
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


def _narrow_by_hash(sessions: Sessions, check: TableCheck, limit: int) -> list[RowDifference]:
    hashes: set[str] = set()
    for bucket in _differing_buckets(sessions, check):
        hashes |= _differing_hashes(sessions, check, bucket)
        if len(hashes) >= limit * 2:
            break
    if not hashes:
        return []  # the tables have changed meanwhile and are equal
    rows = {
        place.name: _rows(
            sessions, check, place, place.seen.where(outside=tablerows.hash_condition(_hash(check, place), hashes))
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
    columns = [checksum.readable_expression(form, place.schema.column(form.column)) for form in forms]
    sql = tablerows.hashes_and_columns(_hash(check, place), columns, rows)
    is_final = check.comparison.ranged and place.name != PLACE_TARGET
    found = sessions.committed_rows(place, sql) if is_final else sessions.query(place, sql)
    return Counter(
        (tuple(None if value is None else _text(value) for value in key), _text(digest)) for digest, *key in found
    )


def _hash(check: TableCheck, place: ComparedTable) -> str:
    return checksum.row_digest(check.comparison.forms, place.schema)


def _condition(check: TableCheck, place: ComparedTable, span: KeyRange) -> str:
    columns = [place.schema.column(name) for name in check.comparison.key] if check.comparison.ranged else []
    return place.seen.within(columns, span)


def row_condition(check: TableCheck, place: ComparedTable, span: KeyRange, hashes: Iterable[str]) -> tuple[str, str]:
    """Return the conditions, inside and outside a reshaped shard, for the rows of a range with these hashes."""
    return _condition(check, place, span), tablerows.hash_condition(_hash(check, place), hashes)


def shown_rows(
    sessions: Sessions, check: TableCheck, place: ComparedTable, span: KeyRange, hashes: Collection[str]
) -> dict[str, Mapping[str, str | None]]:
    """Return the rows of a range with these hashes, as people read them: the compared columns by name."""
    if not hashes:
        return {}
    forms = check.comparison.forms
    columns = [checksum.readable_expression(form, place.schema.column(form.column)) for form in forms]
    rows = place.seen.where(*row_condition(check, place, span, hashes))
    found = sessions.query(place, tablerows.hashes_and_columns(_hash(check, place), columns, rows))
    names = [form.column for form in forms]
    return {
        _text(digest): dict(zip(names, (None if each is None else _text(each) for each in values), strict=True))
        for digest, *values in found
    }


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def columns_of_rules(shards: Sequence[ComparedTable]) -> set[str]:
    """Return the columns, in lower case, whose values a rule fills or changes."""
    reshaped = [place.reshaped for place in shards if place.reshaped]
    filled = {name for each in reshaped for name, _ in each.constants}
    return filled | {name for each in reshaped for name, _, _ in each.mapped}


def numbers_of_shards(sessions: Sessions, check: TableCheck) -> dict[str, int]:
    """Return the next AUTO_INCREMENT of each shard that counts the column as the target does, by name."""
    name = _counted_column(check)
    if not name or name in columns_of_rules(check.shards):
        return {}
    counted = [each for each in check.shards if name in each.schema.by_name and each.schema.by_name[name].is_counted]
    return {each.name: structures.next_number(sessions.connection(each), each.table) for each in counted}


def number_of_target(sessions: Sessions, check: TableCheck) -> tuple[int, int]:
    """Return the next AUTO_INCREMENT of the target, and the number after its rows; 0 if it counts no column."""
    name, target = _counted_column(check), check.target
    if not name:
        return 0, 0
    connection, after_rows = sessions.connection(target), 0
    if any(index.columns[0].lower() == name for index in target.schema.indexes):
        ends = tablerows.value_range(connection, target.table, target.schema.column(name).name)
        after_rows = ends[1] + 1 if ends else 1
    return structures.next_number(connection, target.table), after_rows


def _counted_column(check: TableCheck) -> str:
    """Return the column of the target with AUTO_INCREMENT, in lower case; empty for a target without one."""
    return next((each.name.lower() for each in check.target.schema.columns if each.is_counted), "")


@dataclass(slots=True)
class SizedRanges:
    """Compares ranges whose size follows the time of the servers, a few ranges ahead of its caller."""

    check: TableCheck
    bounds: tuple[int, int]
    """The least and the most rows of a range; the first ones have the most."""
    sessions: Sessions
    pool: ThreadPoolExecutor
    ahead: int
    pace: Resting
    _rows: int = 0

    def compared(self, spans: Sequence[KeyRange]) -> Iterator[ComparedRange]:
        """Yield the sums of each range."""
        self._rows = self.bounds[1]
        asked: list[tuple[KeyRange, list[Future[tuple[dict[str, Sum], float]]]]] = []
        for span in ranges(self.sessions, self.check, lambda: self._rows, spans):
            self.pace.rest()
            asked.append((span, [self.pool.submit(self._timed, places, span) for places in self.check.by_server]))
            while len(asked) > (0 if self.pace.is_beside else self.ahead):
                yield self._collected(*asked.pop(0))
        for each in asked:
            yield self._collected(*each)

    def _timed(self, places: Sequence[ComparedTable], span: KeyRange) -> tuple[dict[str, Sum], float]:
        began = time.monotonic()
        return checksums(self.sessions, self.check, places, span), time.monotonic() - began

    def _collected(self, span: KeyRange, asked: Sequence[Future[tuple[dict[str, Sum], float]]]) -> ComparedRange:
        found = [each.result() for each in asked]
        sums = {place: one for some, _ in found for place, one in some.items()}
        seconds = [took for _, took in found]
        self._rows = rows_of_next_range(self._rows, sums[PLACE_TARGET].rows, max(seconds), self.bounds)
        self.pace.worked += sum(seconds)
        return span, sums
