"""The items of the prechecks, and the functions that derive their problems from values of the servers.

An item that DM has, too, has DM's name, so that `ignore-checking-items` of a DM task file stays valid. DM's items for
its physical import are accepted but check nothing, because rows are loaded with SQL.

`tests/unit/checks/test_coverage.py` says for each US-2xxx and US-6xxx code which check finds it.

SHOW GRANTS is read for privileges that cannot be tried without side effects. Privileges of roles count only if the
server lists them. A line that cannot be parsed grants nothing.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from fnmatch import fnmatchcase

from unshard.core.checks.itemnames import EVERYTHING, ITEMS
from unshard.core.ddl.online import OnlineTable
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.sql.charsets import canonical
from unshard.errors import UnshardError, checks, full, rows
from unshard.errors.base import ServerError
from unshard.errors.config import ExtractionNotFound, MappingAmbiguous, MappingNameUnfit, RouteAmbiguous
from unshard.errors.locks import ShardsWithoutJoin
from unshard.errors.meta import BackupOlder, StorageFailed, StoredFileMissing
from unshard.errors.relay import GtidNotFound
from unshard.errors.source import TableUnsupported

NOT_IGNORED = "`ignore-checking-items` has no effect on this, because the task would stop at it"
ONLY_BY_NAME = (
    "`all` does not ignore it, because the task would stop at it if it is true: name `{name}` to start anyway"
)
TESTED = {"mariadb": ((10, 5), (11, 8)), "mysql": ((5, 6), (9, 7))}
"""The first and the last tested version by make of the server. MySQL 9.7 is followed by calendar versions (26.7)."""
TARGET_LEAST = (5, 7)
"""The first MySQL whose indexes allow 3072 bytes by default."""
KEPT_AT_LEAST = timedelta(days=1)
ABOUT_SHARDS = frozenset({"collation", "expression_filter"})
"""Checks of the target that look at all shards."""
NOT_OF_TABLES = frozenset({"ONLY_FULL_GROUP_BY", "NO_AUTO_CREATE_USER", "NO_DIR_IN_CREATE"})
"""Modes of sql_mode that concern queries, accounts and files."""


class Severity(StrEnum):
    """The severity of an item."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    IGNORED = "ignored"
    """A problem that the task file ignores."""


@dataclass(frozen=True, slots=True)
class Item:
    """The result of one check in one place."""

    name: str
    severity: Severity
    place: str
    message: str
    code: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{self.severity} {self.place} {self.name}: {self.told}{remedy}"

    @property
    def told(self) -> str:
        return f"[{self.code}] {self.message}" if self.code else self.message


def problem(name: str, place: str, error: UnshardError, severity: Severity | None = None) -> Item:
    """Return the item of a problem; without a severity its class decides (CheckWarned)."""
    own = Severity.WARNING if isinstance(error, checks.CheckWarned) else Severity.ERROR
    return Item(name, severity or own, place, error.message, error.code, error.next_step)


def verdict(
    name: str, place: str, errors: Iterable[UnshardError], fine: str, severity: Severity | None = None
) -> list[Item]:
    """Return one item per problem; without problems, one with the message `fine`, unless it is empty."""
    found = [problem(name, place, error, severity) for error in errors]
    return found or ([Item(name, Severity.OK, place, fine)] if fine else [])


def ignoring(
    items: Iterable[Item], names: Collection[str], never: Container[str] = (), by_name: Container[str] = ()
) -> tuple[Item, ...]:
    """Return the items; problems with these names are marked as ignored.

    Errors whose code is in `never` stay errors, because the task would stop at them without the check. Those in
    `by_name` stay errors if only `all` includes them.
    """

    def judged(item: Item) -> Item:
        is_named = item.name in names
        if not item.code or item.name not in ITEMS or not (is_named or EVERYTHING in names):
            return item
        if item.severity is Severity.ERROR and item.code in never:
            return replace(item, remedy=f"{item.remedy}; {NOT_IGNORED}")
        if item.severity is Severity.ERROR and item.code in by_name and not is_named:
            return replace(item, remedy=f"{item.remedy}; {ONLY_BY_NAME.format(name=item.name)}")
        return replace(item, severity=Severity.IGNORED)

    return tuple(map(judged, items))


def version_problems(place: str, version: str) -> list[UnshardError]:
    """Return the warning that unshard is not tested with this version."""
    make = "mariadb" if "mariadb" in version.lower() else "mysql"
    first, last = TESTED[make]
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if first <= found <= last:
        return []
    relation = "newer" if found > last else "older"
    return [checks.VersionUntested(place, version, relation, *(".".join(map(str, each)) for each in (first, last)))]


def target_problems(version: str) -> list[UnshardError]:
    """Return the error that a MySQL is too old for a target."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if "mariadb" in version.lower() or not numbers or (int(numbers[1]), int(numbers[2])) >= TARGET_LEAST:
        return []
    return [checks.TargetTooOld(version, ".".join(map(str, TARGET_LEAST)))]


def kept_for(values: Mapping[str, str]) -> timedelta | None:
    """Return how long the server keeps its binlog, from either variable of MariaDB and MySQL; None: for ever."""
    seconds = float(values.get("binlog_expire_logs_seconds") or 0)
    days = float(values.get("expire_logs_days") or 0)
    return timedelta(seconds=seconds or days * 86400) if seconds or days else None


def image_problems(source: str, image: str) -> list[UnshardError]:
    """Return the warning that row images lack columns."""
    return [] if image.upper() == "FULL" else [checks.RowImageSparse(source, image)]


def engine_problems(source: str, engine: str) -> list[UnshardError]:
    """Return the error that the binlog is not in files but in tables of a storage engine."""
    return [checks.BinlogEngineWrong(source, engine)] if engine else []


def retention_problems(source: str, kept: timedelta | None) -> list[UnshardError]:
    """Return the warning that the server may delete the binlog before it is read."""
    return [checks.RetentionShort(source, str(kept))] if kept is not None and kept < KEPT_AT_LEAST else []


def under_way(
    source: str, online_tables: Iterable[OnlineTable], doubtful: Iterable[tuple[TableId, TableId]]
) -> list[UnshardError]:
    """Return a warning for each table of an online-DDL tool, and for each table that only has the name of one."""
    return [
        *(checks.OnlineDdlUnderWay(source, str(g.table), g.role.value, str(g.real)) for g in online_tables),
        *(checks.ShadowDoubtful(source, str(table), str(real)) for table, real in doubtful),
    ]


def same_server_ids(ids: Mapping[str, str]) -> list[UnshardError]:
    """Return a warning for each server id that several sources have."""
    by_id: dict[str, list[str]] = {}
    for source, number in ids.items():
        by_id.setdefault(number, []).append(source)
    return [checks.ServerIdTwice(", ".join(sources), number) for number, sources in by_id.items() if len(sources) > 1]


def case_rules(settings: Mapping[str, str]) -> list[UnshardError]:
    """Return the warning that `lower_case_table_names` differs between servers; `settings` are the values by server.

    A target that stores names as written and ignores their case (2, as TiDB does) is not compared.
    """
    if settings.get("target") == "2":
        settings = {place: value for place, value in settings.items() if place != "target"}
    told = ", ".join(f"{place}: {value}" for place, value in settings.items())
    return [checks.CaseRulesDiffer(told)] if len(set(settings.values())) > 1 else []


def alike_names(targets: Iterable[TableId]) -> list[UnshardError]:
    """Return an error for each group of target tables whose names differ only in case."""
    found: dict[str, list[str]] = {}
    for target in sorted({*targets}):
        found.setdefault(str(target).lower(), []).append(str(target))
    return [checks.TargetNamesAlike(" and ".join(names)) for names in found.values() if len(names) > 1]


def mode_problems(modes: Mapping[str, str]) -> list[UnshardError]:
    """Return the warning that only some servers have a mode that affects tables; `modes` are the sql_modes by place."""
    having: dict[str, list[str]] = {}
    for place, names in modes.items():
        for mode in sorted(set(filter(None, names.upper().split(","))) - NOT_OF_TABLES):
            having.setdefault(mode, []).append(place)
    alone: dict[str, list[str]] = {}
    for mode, places in having.items():
        if len(places) < len(modes):
            alone.setdefault(shortened(places), []).append(mode)
    told = "; ".join(f"{', '.join(names)} only on {places}" for places, names in alone.items())
    return [checks.ModesDiffer(told)] if alone else []


def collation_problems(what: str, collations: Mapping[str, str]) -> list[UnshardError]:
    """Return the warning that the collations of the places differ; `collations` are the values by place."""
    having: dict[str, list[str]] = {}
    for place, collation in collations.items():
        having.setdefault(canonical(collation), []).append(place)
    told = ", ".join(f"{collation} ({shortened(places)})" for collation, places in having.items())
    return [checks.CollationsDiffer(what, told)] if len(having) > 1 else []


def zone_problems(source: str, offsets: Mapping[datetime, timedelta], name: str, zone: tzinfo) -> list[UnshardError]:
    """Return the warning that a source's time zone is not the task's; `offsets` are its UTC offsets by UTC time."""
    for moment, ahead in offsets.items():
        ours = moment.replace(tzinfo=UTC).astimezone(zone).utcoffset()
        if ours != ahead:
            return [checks.ZonesDiffer(source, f"{timezone(ahead)} on {moment:%Y-%m-%d}", name)]
    return []


def counting_up(target: TableId, shards: Mapping[Shard, TableSchema]) -> list[UnshardError]:
    """Return the warning that several shards number their rows."""
    counting = sorted(shard for shard, schema in shards.items() if _counts_up(schema))
    if len(counting) < 2:
        return []
    return [checks.KeysCountUp(str(target), len(counting), str(counting[0]), str(counting[1]))]


def _counts_up(schema: TableSchema) -> bool:
    key = {name.lower() for name in schema.key}
    return any("auto_increment" in column.extra and column.name.lower() in key for column in schema.columns)


def naming_unseen(items: Iterable[Item], unseen: Sequence[str]) -> list[Item]:
    """Return items; those that are OK for all seen shards of a target name the sources that were not seen."""
    left = f"; shards of {shortened(unseen)} are not known" if unseen else ""

    def told(item: Item) -> Item:
        is_of_shards = item.place != "target" or item.name in ABOUT_SHARDS
        return replace(item, message=item.message + left) if is_of_shards and item.severity is Severity.OK else item

    return [*map(told, items)]


def as_seen(fine: str, seen: Sequence[str], count: int, least: int = 1) -> str:
    """Return the message of a check over `count` servers; empty if fewer than `least` of them were seen."""
    if len(seen) < least:
        return ""
    return fine if len(seen) == count else f"{fine} on {shortened(seen)}; the others are not known"


def shortened(names: Sequence[str], limit: int = 5) -> str:
    """Return the first `limit` names, and the number of the others."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


# --- items that differ only in dotted names, such as `shop_1.orders`, are one line


NAMES = re.compile(r"[^\s,;:()'\"]+\.[^\s,;:()'\"]+")
MOST = 4
"""Alike items that are printed one by one."""
SHOWN = 3
"""Names in the message of a group."""


def summaries(items: Iterable[Item]) -> list[Item]:
    """Return one item for each group of more than four that are alike, and the others as they are."""
    groups: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        groups.setdefault(_without_names(item), []).append(item)
    found: list[Item] = []
    for group in groups.values():
        found += group if len(group) <= MOST else [_summary(group)]
    return found


def _summary(group: Sequence[Item]) -> Item:
    names = [*map(_names, group)]
    everywhere = set(names[0]).intersection(*names[1:])
    own = [
        next((name for name in found if name not in everywhere), item.place)
        for found, item in zip(names, group, strict=True)
    ]
    others = f"the same for {len(group) - 1} others, such as {', '.join(own[1:][:SHOWN])}"
    return replace(group[0], message=f"{group[0].message}; {others}")


def _names(item: Item) -> list[str]:
    return [*NAMES.findall(item.place), *NAMES.findall(item.message)]


def _without_names(item: Item) -> tuple[str, ...]:
    texts = (NAMES.sub("…", text) for text in (item.place, item.message, item.remedy))
    return item.severity, item.name, item.code, *texts


# --- findings that `ignore-checking-items: [all]` cannot hide


UNFIT: tuple[type[UnshardError], ...] = (
    rows.ColumnNotInTarget,
    rows.ColumnTypesDiffer,
    rows.ExtractedColumnMissing,
    rows.ExtractedColumnTaken,
    rows.ExtractedValueUnfit,
    rows.ExtractionNeedsTable,
    rows.KeyColumnMissing,
    rows.MappedColumnMissing,
    rows.MappedColumnUnfit,
    rows.MappedNotKey,
)
"""Errors of a structure, or of the names of a shard, with which no row of the shard can be written."""
CERTAIN: tuple[type[UnshardError], ...] = (
    *UNFIT,
    BackupOlder,
    checks.BinlogDisabled,
    full.ConditionChanged,
    full.ConditionRefused,
    full.DumpLeft,
    rows.EngineNotTransactional,
    ExtractionNotFound,
    GtidNotFound,
    MappingAmbiguous,
    MappingNameUnfit,
    full.NotDumped,
    RouteAmbiguous,
    ServerError,
    checks.ShardsDiffer,
    ShardsWithoutJoin,
    checks.StartBeyond,
    checks.StartGone,
    StorageFailed,
    StoredFileMissing,
    checks.StructureRefused,
    TableUnsupported,
    checks.TargetNamesAlike,
    full.TargetNotEmpty,
    checks.TargetReadOnly,
    checks.TargetTableUnfit,
    checks.TargetTooOld,
    full.TransactionsPrepared,
)
"""Errors that the first steps of a task raise if they find what the check found."""


LIKELY: tuple[type[UnshardError], ...] = (
    checks.KeysOverlap,
    rows.MappedIdsTooLarge,
    checks.PrivilegesMissing,
    rows.RowFilterFailed,
    checks.ServerIdZero,
)
"""Errors with which a later step fails, unless a row is not dumped or changed, or the server lists no role of the
account: `all` does not ignore them, their own item does.
"""


def codes(kinds: tuple[type[UnshardError], ...]) -> frozenset[str]:
    """Return the codes of the classes and of their subclasses."""
    return frozenset(each.code for kind in kinds for each in (kind, *kind.__subclasses__()))


# --- settings of the target's sessions with which unshard does not work


OLD_ROWS = "reads show rows of an earlier moment, and unshard decides by what it reads"
NO_LOCKS = "transactions take no locks: a conflict shows at COMMIT only, or TiDB repeats the writes unchecked"
DUPLICATES = "a key that exists already is found at COMMIT only, so the collision cannot be told apart or treated"
BAD_TEXT = "bytes that are no valid text are stored without an error"
OFF = ("0", "OFF")


@dataclass(frozen=True, slots=True)
class SettingRule:
    """The values of a variable with which unshard works; the first is the recommended one."""

    good: tuple[str, ...]
    why: str


RULES = {
    "tidb_txn_mode": SettingRule(("pessimistic",), NO_LOCKS),
    "tidb_constraint_check_in_place_pessimistic": SettingRule(("ON", "1"), DUPLICATES),
    "tidb_read_staleness": SettingRule(("0",), OLD_ROWS),
    "tidb_enable_external_ts_read": SettingRule(OFF, OLD_ROWS),
    "tidb_low_resolution_tso": SettingRule(OFF, "TiDB refuses every write"),
    "tidb_skip_utf8_check": SettingRule(OFF, BAD_TEXT),
    "tidb_skip_ascii_check": SettingRule(OFF, BAD_TEXT),
}


def wrong_settings(values: Mapping[str, str]) -> Iterator[UnshardError]:
    """Yield an error for each wrong value; `values` are the settings by variable."""
    for variable, rule in RULES.items():
        value = values.get(variable)
        if value is not None and value.lower() not in {good.lower() for good in rule.good}:
            yield checks.TargetSettingWrong(variable, value, rule.why, rule.good[0])


# --- the privileges of an account, from the lines of SHOW GRANTS


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


def parse_grants(lines: Iterable[str]) -> tuple[Grant, ...]:
    """Parse the lines that SHOW GRANTS returns."""
    return tuple(grant for line in lines if (grant := _parse_grant(line)) is not None)


def missing_privileges(
    grants: Iterable[Grant], privileges: Iterable[str], schema: str = "*", table: str = "*"
) -> tuple[str, ...]:
    """Return the privileges that no grant contains for the scope."""
    known = tuple(grants)
    return tuple(each for each in privileges if not any(grant.allows(each, schema, table) for grant in known))


def _parse_grant(line: str) -> Grant | None:
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
