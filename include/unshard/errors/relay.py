"""US-30xx: pulling the binlog, its stored segments, and events that unshard cannot follow."""

from unshard.errors.base import RelayError, Scope


class BinlogOff(RelayError, code="US-3001"):
    """The source writes no binlog, so unshard cannot follow its changes.

    Remedy: Start the server with `log_bin` and `binlog_format=ROW` and dump the source again. Changes made in between
    are in no binlog.
    """

    source: str
    template = "source {source} writes no binlog (log_bin is off)"
    hint = "start the server with log_bin and binlog_format=ROW, then dump the source again"


class BinlogSettingRefused(RelayError, code="US-3002"):
    """`binlog_format` is not ROW.

    Remedy: Set it globally and in the server's configuration, and reconnect all clients, because sessions keep the
    value with which they began.
    """

    source: str
    variable: str
    value: str
    wanted: str
    template = "source {source} has {variable}={value}, unshard needs {wanted}"
    hint = "SET GLOBAL {variable}={wanted}, put it into the server's configuration and reconnect all clients"


class SourceReplaced(RelayError, code="US-3003"):
    """The server at the address is not the recorded one.

    unshard compares `server_uuid` (MySQL) or `server_id` and the data directory (MariaDB).
    Binlog positions are valid only on their own server. unshard can continue on another server by GTID, but here it
    cannot verify that both have the same history: one of the two has no GTIDs, their GTIDs are of different kinds, or
    the binlog was not yet pulled up to the end of the dump.
    """

    source: str
    known: str
    found: str
    template = "source {source} is now {found}, its binlog positions belong to {known}"
    hint = "point the source file at the former server, or dump the source again; only GTIDs allow a change of server"


class BinlogPurged(RelayError, code="US-3004"):
    """The source removed binlog files before unshard pulled them. Their changes are lost for unshard.

    Remedy: [Dump again](operations.md#dumping-again), and keep binlogs longer than the longest pause of the task.
    """

    source: str
    location: str
    oldest: str
    template = "source {source} has purged its binlog at {location}, the oldest file left is {oldest}"
    hint = (
        "dump again (docs/operations.md, Dumping again), and raise expire_logs_days or binlog_expire_logs_seconds above"
        " the longest pause"
    )


class PositionBeyondEnd(RelayError, code="US-3005"):
    """The source's binlog ends before the position that unshard has already reached.

    The binlog was reset, or the server was restored from an older backup.

    Remedy: [Dump again](operations.md#dumping-again).
    """

    source: str
    location: str
    end: str
    template = "source {source} ends at {end}, before {location}, which unshard has already reached"
    hint = "the binlog was reset (RESET MASTER) or the server restored: dump the source again"


class BinlogReplaced(RelayError, code="US-3006"):
    """A binlog file has the known name but was created at another time or by another server.

    The binlog was reset, or another server answers.
    """

    source: str
    file: str
    known: str
    found: str
    template = "{file} of source {source} is another file than the one pulled before: {found} instead of {known}"
    hint = "the binlog was reset (RESET MASTER) or another server answers: dump the source again"


class DumpRefused(RelayError, code="US-3007"):
    """The server ended the binlog dump with an error.

    Remedy: For 1045 and 1227 grant the privilege REPLICATION SLAVE. The message of 1236 says what is wrong with the
    binlog, or that another replica uses the same `server-id` (remove it from the source file).
    """

    source: str
    location: str
    errno: int
    server_message: str
    template = "source {source} refuses to send its binlog from {location}: error {errno}, {server_message}"
    hint = "for 1045 and 1227 grant REPLICATION SLAVE; 1236 is about the binlog or the server id"


class DumpBroken(RelayError, code="US-3008", transient=True):
    """The connection broke while the server sent its binlog.

    Consequence: Stored segments stay, and the next pull continues after them.
    """

    source: str
    location: str
    server_message: str
    template = "the binlog dump of source {source} broke after {location}: {server_message}"
    hint = "run it again, it continues where it stopped; if it repeats, read the source's error log"


class PositionGap(RelayError, code="US-3009"):
    """An event does not begin where the previous one ended, so something between them is missing.

    Consequence: unshard reads this source no further. It never skips a gap.
    """

    source: str
    location: str
    found: int
    template = "the binlog of source {source} has a gap at {location}: the next event ends at {found}"
    hint = "run it again; if it repeats check the source's binlog file with mariadb-binlog --verify-binlog-checksum"


class UnknownEvent(RelayError, code="US-3010"):
    """The binlog has an event type that unshard does not know. Skipping it might lose rows."""

    place: str
    type: int
    template = "unknown binlog event type {type} at {place}"
    hint = "check docs/limits.md for supported servers and report the type with the server's version"


class UnsupportedEvent(RelayError, code="US-3011"):
    """The binlog has a known event that unshard cannot follow yet.

    The message names it: an encrypted binlog, a statement inside an XA transaction, an incident, or an event of an
    unsupported flavor.
    """

    place: str
    what: str
    template = "the binlog has {what} at {place}, which unshard cannot follow"
    hint = "avoid it on the source (docs/limits.md), then dump the source again, after this event"


class DamagedEvent(RelayError, code="US-3012"):
    """The bytes of an event contradict each other, or its checksum is wrong.

    Remedy: If the event is in a stored segment, remove the segment and its `.json` file and run the relay again. If it
    occurs while pulling, check the source's binlog and disk.
    """

    place: str
    reason: str
    template = "damaged binlog event at {place}: {reason}"
    hint = "remove this relay segment and its index so that it is pulled again; if it repeats check the source's disk"


class BinlogInEngine(RelayError, code="US-3033"):
    """The source keeps its binlog in a storage engine (`binlog_storage_engine = innodb`, MariaDB 12.3).

    unshard reads a binlog by the positions of its files. `unshard check` reports this as
    [US-2364](#us-2364-binlogenginewrong).

    Remedy: Remove `binlog_storage_engine` from the server's configuration and restart the server. Then dump the source
    again, because the changes made in between are in no binlog that unshard can read.
    """

    source: str
    engine: str
    template = "source {source} has binlog_storage_engine = {engine}: its binlog is not in files"
    hint = "remove binlog_storage_engine from the server's configuration, restart it, then dump the source again"


class FailoverDiverged(RelayError, code="US-3035"):
    """The source file names another server with the same GTIDs, but its copy of the last pulled transaction differs.

    Someone wrote to this server directly, or its transaction has another origin. So the histories differ although the
    GTIDs are equal. The message shows the first difference on both servers.

    Consequence: The relay does not follow this server. Nothing is lost or changed.
    Remedy: Compare both transactions with `mariadb-binlog --verbose` or `mysqlbinlog --verbose` at the positions of the
    message. If the former server has the right rows, name it in the source file again. Otherwise repair the new
    server, or [dump again](operations.md#dumping-again).
    """

    source: str
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
    """The fragments of a rows event (PARTIAL_ROW_DATA of MariaDB 12.3) do not form a whole event.

    One is missing, has another number or total than the ones before it, or they do not have the size of their event.

    Consequence: unshard reads this source no further. It applies no part of such an event.
    Remedy: Run again. If it repeats, check the source's binlog file and its disk. If the file is intact, dump the
    source again, and set `binlog_row_event_fragment_threshold` above the largest rows event.
    """

    place: str
    reason: str
    template = "the fragments of a rows event at {place} do not fit together: {reason}"
    hint = (
        "run it again; if it repeats check the source's binlog file with mariadb-binlog --verify-binlog-checksum; if"
        " the file is intact raise binlog_row_event_fragment_threshold there and dump the source again"
    )


class StatementDml(RelayError, code="US-3013"):
    """A statement changed rows without row events, because a session had `binlog_format` STATEMENT or MIXED.

    unshard cannot safely repeat such a statement on another server. A statement that changes only tables which do not
    belong to the task is ignored. unshard cannot know that if a table is a view, has triggers or an engine that writes
    into other tables, if a stored routine may be called, or if a later statement has removed such a thing. On MariaDB,
    the account of the source must also have the global privileges SELECT and TRIGGER to see them.

    Consequence: The shards that the statement may have changed wait for an operator; all shards of the source if its
    tables are not known. Everything else continues.
    Remedy: If the statement has changed rows of shards, change the same rows of the target by hand. Then skip it
    (`unshard skip`). `unshard validate` shows whether rows differ. Keep `binlog_format=ROW` in every session.
    """

    text: str
    template = "rows may have been changed by a statement, without row events: {text}"
    hint = (
        "change the same rows of the target by hand if they belong to shards, then skip the statement; keep"
        " binlog_format=ROW in every session"
    )


class RelayGap(RelayError, code="US-3014"):
    """A stored segment is missing between two others."""

    source: str
    location: str
    following: str
    template = "the relay of source {source} has nothing from {location} on, but continues at {following}"
    hint = "run the relay again: it pulls the missing part while the source still has it"


class SegmentDamaged(RelayError, code="US-3015", scope=Scope.INTERNAL):
    """A segment or its index, as a file or an object, is missing, too short or unreadable."""

    path: str
    reason: str
    template = "relay segment {path} is damaged: {reason}"
    hint = "remove the segment and its .json file and run the relay again: it pulls the missing part"


class SegmentMissing(SegmentDamaged, code="US-3036", scope=Scope.INTERNAL, transient=True):
    """A relay segment that unshard was about to read does not exist any more.

    Another run of the same task has finished with it and removed it. Or someone removed it by hand.

    Consequence: Nothing is lost. The next attempt reads the present state of the task.
    Remedy: Nothing has to be done if another run is active. If the error repeats, the segment was removed by hand: the
    next relay pulls it again while the source still has that part of its binlog.
    """

    template = "relay segment {path} is gone: {reason}"
    hint = (
        "nothing has to be done if another run of this task is active: it has finished with the segment; if it repeats"
        " someone removed the file, and the next run pulls it again"
    )


class RelayUnwritable(RelayError, code="US-3023", scope=Scope.INTERNAL, transient=True):
    """unshard cannot write into the relay's folder or bucket.

    There is no space or no permission, a network file system or an object store does not respond, or there is no
    space for the temporary file from which unshard sends a segment.

    Consequence: Complete stored segments stay, and the next pull continues after them.
    """

    folder: str
    reason: str
    template = "cannot store the binlog in {folder}: {reason}"
    hint = (
        "check free space and permissions of the storage path, and for an object store the space for temporary files;"
        " the next run continues where this one stopped"
    )


class PreparedUnseen(RelayError, code="US-3024"):
    """An XA transaction is committed, but its first part (XA PREPARE) is before the position at which the relay began.

    Its rows are neither in the relay nor in the dump. This happens if the relay's folder is lost while XA transactions
    are prepared, or if one is prepared at the moment of the snapshot.
    """

    source: str
    xid: str
    place: str
    template = "source {source} commits XA transaction {xid} at {place}, which was prepared before the relay began"
    hint = "dump the source again at a moment when XA RECOVER lists nothing there"


class GtidNotFound(RelayError, code="US-3025", transient=True):
    """The source file names another server than before, and its binlog has no position after exactly the same GTIDs.

    The server has not replicated all pulled transactions yet, has purged them, or has another history. `unshard check`
    reports the same code for a `binlog-gtid` of `meta`: use GTIDs that the source has, including all before the start.

    Consequence: Nothing is lost or changed. unshard continues as soon as the server has the transactions.
    Remedy: If the histories differ (transactions that were lost with the former server are already applied), dump the
    source again.
    """

    source: str
    identity: str
    gtid: str
    reason: str
    template = "the binlog of source {source}, at present {identity}, has no position after exactly {gtid}: {reason}"
    hint = "wait until it has replicated that far, or name a server that has; if histories differ dump the source again"
