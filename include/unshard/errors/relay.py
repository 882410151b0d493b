"""US-3xxx: the binlog, its relay and its decoding."""

from dataclasses import dataclass

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class RelayError(UnshardError):
    """The binlog cannot be pulled or read any further."""

    scope = Scope.UPSTREAM


@dataclass(eq=False)
class BinlogOff(RelayError):
    """The source writes no binlog."""

    source: str
    code = "US-3001"
    template = "source {source} writes no binlog (log_bin is off)"
    hint = "start the server with log_bin and binlog_format=ROW, then dump the source again"


@dataclass(eq=False)
class BinlogSettingRefused(RelayError):
    """A global setting makes the binlog hold something else than whole rows."""

    source: str
    variable: str
    value: str
    wanted: str
    code = "US-3002"
    template = "source {source} has {variable}={value}, unshard needs {wanted}"
    hint = "SET GLOBAL {variable}={wanted}, put it into the server's configuration and reconnect all clients"


@dataclass(eq=False)
class SourceReplaced(RelayError):
    """Another server answers than the one whose binlog has been followed."""

    source: str
    known: str
    found: str
    code = "US-3003"
    template = "source {source} is now {found}, its binlog positions belong to {known}"
    hint = "point the source file at the former server, or dump the source again; only GTIDs let another one go on"


@dataclass(eq=False)
class BinlogPurged(RelayError):
    """The source has removed binlog files that were not pulled yet."""

    source: str
    location: str
    oldest: str
    code = "US-3004"
    template = "source {source} has purged its binlog at {location}, the oldest file left is {oldest}"
    hint = (
        "dump again (docs/operations.md, Dumping again), and raise expire_logs_days or binlog_expire_logs_seconds above"
        " the longest pause"
    )


@dataclass(eq=False)
class PositionBeyondEnd(RelayError):
    """The upstream's binlog ends before what has been pulled already."""

    source: str
    location: str
    end: str
    code = "US-3005"
    template = "source {source} ends at {end}, before {location} that has been reached already"
    hint = "the binlog was reset (RESET MASTER) or the server restored: dump the source again"


@dataclass(eq=False)
class BinlogReplaced(RelayError):
    """The binlog file has the known name but is another file."""

    source: str
    file: str
    known: str
    found: str
    code = "US-3006"
    template = "{file} of source {source} is another file than the one pulled before: {found} instead of {known}"
    hint = "the binlog was reset (RESET MASTER) or another server answers: dump the source again"


@dataclass(eq=False)
class DumpRefused(RelayError):
    """The server ends the binlog dump with an error of its own."""

    source: str
    location: str
    errno: int
    words: str
    code = "US-3007"
    template = "source {source} refuses to send its binlog from {location}: error {errno}, {words}"
    hint = "1045 and 1227 ask for REPLICATION SLAVE, 1236 tells what is wrong with the binlog or the server id"


@dataclass(eq=False)
class DumpBroken(RelayError):
    """The connection that carries the binlog broke; what was stored stays."""

    source: str
    location: str
    words: str
    code = "US-3008"
    transient = True
    template = "the binlog dump of source {source} broke behind {location}: {words}"
    hint = "run it again, it goes on where it was; if it repeats look into the source's error log"


@dataclass(eq=False)
class PositionGap(RelayError):
    """An event does not stand where the last one ended."""

    source: str
    location: str
    found: int
    code = "US-3009"
    template = "the binlog of source {source} has a gap at {location}: the next event says that it ends at {found}"
    hint = "run it again; if it repeats check the source's binlog file with mariadb-binlog --verify-binlog-checksum"


@dataclass(eq=False)
class UnknownEvent(RelayError):
    """An event type that unshard does not know; passing over it might lose rows."""

    place: str
    type: int
    code = "US-3010"
    template = "unknown binlog event type {type} at {place}"
    hint = "check docs/limits.md for supported servers and report the type with the server's version"


@dataclass(eq=False)
class UnsupportedEvent(RelayError):
    """An event whose meaning is known and cannot be followed yet."""

    place: str
    what: str
    code = "US-3011"
    template = "the binlog holds {what} at {place}, which unshard cannot follow"
    hint = "avoid it on the source (docs/limits.md), then dump the source again from behind it"


@dataclass(eq=False)
class DamagedEvent(RelayError):
    """Bytes of an event contradict each other."""

    place: str
    words: str
    code = "US-3012"
    template = "damaged binlog event at {place}: {words}"
    hint = "remove this relay segment and its index so that it is pulled again; if it repeats check the source's disk"


@dataclass(eq=False)
class StatementDml(RelayError):
    """Rows were changed by a statement instead of row events."""

    place: str
    text: str
    code = "US-3013"
    template = "rows were changed by a statement at {place}: {text}"
    hint = "keep binlog_format=ROW in every session, then dump the source again from behind this statement"


@dataclass(eq=False)
class RelayGap(RelayError):
    """Stored segments do not follow each other."""

    source: str
    location: str
    following: str
    code = "US-3014"
    template = "the relay of source {source} has nothing from {location} on, but goes on at {following}"
    hint = "run the relay again, it pulls what is missing while the source still has it"


@dataclass(eq=False)
class SegmentDamaged(RelayError):
    """A stored segment is missing, too short or unreadable."""

    path: str
    words: str
    scope = Scope.INTERNAL
    code = "US-3015"
    template = "relay segment {path} is damaged: {words}"
    hint = "remove the segment and its .json file and run the relay again, it pulls what is missing"


@dataclass(eq=False)
class PartialRowImage(RelayError):
    """A row event leaves columns out that nothing else tells."""

    shard: str
    place: str
    why: str = ""
    code = "US-3016"
    template = "rows of {shard} at {place} lack columns (binlog_row_image is not FULL in that session) {why}"
    hint = "set binlog_row_image=FULL globally and in every session, then dump the source again"


@dataclass(eq=False)
class DefaultUnknown(RelayError):
    """An INSERT leaves a column out whose default is not known as a value."""

    shard: str
    column: str
    place: str
    default: str
    code = "US-3031"
    template = (
        "an INSERT into {shard} at {place} leaves out column '{column}' (binlog_row_image is not FULL in that session),"
        " whose default ({default}) cannot be told from its text"
    )
    hint = "set binlog_row_image=FULL globally and in every session, then dump the source again"


@dataclass(eq=False)
class ColumnCountDiffers(RelayError):
    """The rows have more or fewer columns than the structure that is tracked for the shard."""

    shard: str
    place: str
    found: int
    tracked: int
    code = "US-3017"
    template = "rows of {shard} at {place} have {found} columns, the tracked structure has {tracked}"
    hint = "a DDL was not seen (sql_log_bin=0?): dump the shard again"


@dataclass(eq=False)
class ColumnTypeDiffers(RelayError):
    """A column of the rows is of another type than the structure that is tracked for the shard."""

    shard: str
    column: str
    place: str
    found: str
    tracked: str
    code = "US-3018"
    template = "column {column} of {shard} is {found} in the rows at {place}, but {tracked} in the tracked structure"
    hint = "a DDL was not seen (sql_log_bin=0?): dump the shard again"


@dataclass(eq=False)
class UnsupportedColumn(RelayError):
    """A column of a type that cannot be carried over."""

    shard: str
    column: str
    type: str
    code = "US-3019"
    template = "column {column} of {shard} has a type that unshard cannot carry: {type}"
    hint = "change the column's type on the source, or leave the table out with block-allow-list"


@dataclass(eq=False)
class DamagedRow(RelayError):
    """The bytes of a row do not fit the table's structure."""

    shard: str
    place: str
    words: str
    code = "US-3021"
    template = "rows of {shard} at {place} cannot be read: {words}"
    hint = "a DDL was not seen or the event is damaged: pull the segment again, else dump the shard again"


@dataclass(eq=False)
class RowsWithoutTable(RelayError):
    """A row event whose table map is not in the same transaction."""

    place: str
    table_id: int
    code = "US-3022"
    template = "rows at {place} belong to table id {table_id}, which no event before them describes"
    hint = "remove this relay segment and its index so that it is pulled again; if it repeats report it"


@dataclass(eq=False)
class PreparedUnseen(RelayError):
    """An XA transaction is committed whose rows stand before all that was pulled."""

    source: str
    xid: str
    place: str
    code = "US-3024"
    template = "source {source} commits XA transaction {xid} at {place}, which was prepared before the relay began"
    hint = "dump the source again at a moment when XA RECOVER lists nothing there"


@dataclass(eq=False)
class GtidNotFound(RelayError):
    """The binlog of a server does not have exactly the wanted transactions anywhere."""

    source: str
    identity: str
    gtid: str
    words: str
    code = "US-3025"
    transient = True
    template = "the binlog of source {source}, at present {identity}, has no place behind exactly {gtid}: {words}"
    hint = "wait until it has replicated that far, or name a server that has; if histories differ dump the source again"


@dataclass(eq=False)
class RelayUnwritable(RelayError):
    """The relay's folder or bucket takes no more bytes."""

    folder: str
    words: str
    scope = Scope.INTERNAL
    transient = True
    code = "US-3023"
    template = "cannot store the binlog in {folder}: {words}"
    hint = (
        "check free space and permissions of the storage path, of an object store also room for temporary files; it"
        " goes on where it was"
    )


@dataclass(eq=False)
class RowsContradict(RelayError):
    """Rows of a shard do not have the structure that is tracked for it; only this shard waits for an operator."""

    shard: str
    location: str
    words: str
    code = "US-3032"
    template = "a DDL of {shard} is missing in the binlog, its rows after {location} have another structure: {words}"
    hint = "replace it for this shard by the statement that the shard has run, or drop the shard"
