"""US-30xx: pulling the binlog, its stored segments, and events that unshard cannot follow."""

from unshard.errors.base import RelayError, Scope, SourceRelayError


class BinlogOff(SourceRelayError, code="US-3001"):
    template = "source {source} writes no binlog (log_bin is off)"
    hint = "start the server with log_bin and binlog_format=ROW, then dump the source again"


class BinlogSettingRefused(SourceRelayError, code="US-3002"):
    variable: str
    value: str
    wanted: str
    template = "source {source} has {variable}={value}, unshard needs {wanted}"
    hint = "SET GLOBAL {variable}={wanted}, put it into the server's configuration and reconnect all clients"


class SourceReplaced(SourceRelayError, code="US-3003"):
    known: str
    found: str
    template = "source {source} is now {found}, its binlog positions belong to {known}"
    hint = "point the source file at the former server, or dump the source again; only GTIDs allow a change of server"


class BinlogPurged(SourceRelayError, code="US-3004"):
    location: str
    oldest: str
    template = "source {source} has purged its binlog at {location}, the oldest file left is {oldest}"
    hint = (
        "dump again (docs/operations.md, Dumping again), and raise expire_logs_days or binlog_expire_logs_seconds above"
        " the longest pause"
    )


class PositionBeyondEnd(SourceRelayError, code="US-3005"):
    location: str
    end: str
    template = "source {source} ends at {end}, before {location}, which unshard has already reached"
    hint = "the binlog was reset (RESET MASTER) or the server restored: dump the source again"


class BinlogReplaced(SourceRelayError, code="US-3006"):
    file: str
    known: str
    found: str
    template = "{file} of source {source} is another file than the one pulled before: {found} instead of {known}"
    hint = "the binlog was reset (RESET MASTER) or another server answers: dump the source again"


class DumpRefused(SourceRelayError, code="US-3007"):
    location: str
    errno: int
    server_message: str
    template = "source {source} refuses to send its binlog from {location}: error {errno}, {server_message}"
    hint = "for 1045 and 1227 grant REPLICATION SLAVE; 1236 is about the binlog or the server id"


class DumpBroken(SourceRelayError, code="US-3008", transient=True):
    location: str
    server_message: str
    template = "the binlog dump of source {source} broke after {location}: {server_message}"
    hint = "run it again, it continues where it stopped; if it repeats, read the source's error log"


class PositionGap(SourceRelayError, code="US-3009"):
    location: str
    found: int
    template = "the binlog of source {source} has a gap at {location}: the next event ends at {found}"
    hint = "run it again; if it repeats check the source's binlog file with mariadb-binlog --verify-binlog-checksum"


class UnknownEvent(RelayError, code="US-3010"):
    place: str
    type: int
    template = "unknown binlog event type {type} at {place}"
    hint = "check docs/limits.md for supported servers and report the type with the server's version"


class UnsupportedEvent(RelayError, code="US-3011"):
    place: str
    what: str
    template = "the binlog has {what} at {place}, which unshard cannot follow"
    hint = "avoid it on the source (docs/limits.md), then dump the source again, after this event"


class DamagedEvent(RelayError, code="US-3012"):
    place: str
    reason: str
    template = "damaged binlog event at {place}: {reason}"
    hint = "remove this relay segment and its index so that it is pulled again; if it repeats check the source's disk"


class BinlogInEngine(SourceRelayError, code="US-3033"):
    engine: str
    template = "source {source} has binlog_storage_engine = {engine}: its binlog is not in files"
    hint = "remove binlog_storage_engine from the server's configuration, restart it, then dump the source again"


class FailoverDiverged(SourceRelayError, code="US-3035"):
    identity: str
    gtid: str
    our_place: str
    ours: str
    their_place: str
    theirs: str
    template = (
        "the new server of source {source}, {identity}, has another transaction {gtid} than the former one: pulled at"
        " {our_place}: {ours}; at {their_place} of the new server: {theirs}"
    )
    hint = (
        "name the former server again, or compare both with mariadb-binlog --verbose (mysqlbinlog --verbose) and repair"
        " the new server, or dump the source again (docs/operations.md, Dumping again)"
    )


class FragmentsBroken(RelayError, code="US-3034"):
    place: str
    reason: str
    template = "the fragments of a rows event at {place} do not fit together: {reason}"
    hint = (
        "run it again; if it repeats check the source's binlog file with mariadb-binlog --verify-binlog-checksum; if"
        " the file is intact raise binlog_row_event_fragment_threshold there and dump the source again"
    )


class StatementDml(RelayError, code="US-3013"):
    text: str
    template = "rows may have been changed by a statement, without row events: {text}"
    hint = (
        "change the same rows of the target by hand if they belong to shards, then skip the statement; keep"
        " binlog_format=ROW in every session"
    )


class RelayGap(SourceRelayError, code="US-3014"):
    location: str
    following: str
    template = "the relay of source {source} has nothing from {location} on, but continues at {following}"
    hint = "run the relay again: it pulls the missing part while the source still has it"


class SegmentDamaged(RelayError, code="US-3015", scope=Scope.INTERNAL):
    path: str
    reason: str
    template = "relay segment {path} is damaged: {reason}"
    hint = "remove the segment and its .json file and run the relay again: it pulls the missing part"


class SegmentMissing(SegmentDamaged, code="US-3036", scope=Scope.INTERNAL, transient=True):
    template = "relay segment {path} is gone: {reason}"
    hint = (
        "nothing has to be done if another run of this task is active: it has finished with the segment; if it repeats"
        " someone removed the file, and the next run pulls it again"
    )


class RelayUnwritable(RelayError, code="US-3023", scope=Scope.INTERNAL, transient=True):
    folder: str
    reason: str
    template = "cannot store the binlog in {folder}: {reason}"
    hint = (
        "check free space and permissions of the storage path, and for an object store the space for temporary files;"
        " the next run continues where this one stopped"
    )


class PreparedUnseen(SourceRelayError, code="US-3024"):
    xid: str
    place: str
    template = "source {source} commits XA transaction {xid} at {place}, which was prepared before the relay began"
    hint = "dump the source again at a moment when XA RECOVER lists nothing there"


class GtidNotFound(SourceRelayError, code="US-3025", transient=True):
    identity: str
    gtid: str
    reason: str
    template = "the binlog of source {source}, at present {identity}, has no position after exactly {gtid}: {reason}"
    hint = "wait until it has replicated that far, or name a server that has; if histories differ dump the source again"
