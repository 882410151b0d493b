"""Late indexes: load a large empty target without its non-unique secondary indexes, and create them at the end.

Runs in the driver. Maintaining such an index row by row costs more than writing the row, and two writers of one table
wait for each other at its pages. A server without such pages (TiDB) is loaded with all indexes: `keeps_pages` tests for
this property, not for the server's name. The dropped indexes are recorded first. A call that finds such a record and no
row left to load creates the missing indexes.

| process dies                   | what happens                                                          |
|--------------------------------|-----------------------------------------------------------------------|
| after the record, before DROP  | the table has its indexes: the load is slower, the record is removed at the end |
| after DROP, in the load        | the next load continues; its end, or the handover, creates them       |
| while the server creates them  | its session holds the guard; the handover waits for it, then checks the indexes |
| after that, before the record is removed | nothing is missing; the record is removed                   |

No window begins before the handover, so no DDL of a shard is executed on a target without its indexes.
"""

import contextlib
import logging

from unshard.adapters import mysql, serverstate
from unshard.adapters.structures import has_rows, keeps_pages, read_schema
from unshard.core.full.lateindexes import LateIndex, add_statement, drop_statement, late_indexes, missing
from unshard.core.model import TableId
from unshard.core.task.state import Phase
from unshard.errors.ddl import DdlStillRunning
from unshard.errors.source import StatementRefused, TableMissing
from unshard.units.ddl.execute import LOCK_WAIT_SECONDS, target_guard
from unshard.units.work import Work

log = logging.getLogger(__name__)

MAKING_SECONDS = 6 * 3600
"""Time that the handover waits for a session that creates the indexes and whose client died."""
NEEDED_BY_FOREIGN_KEY = 1553


def postpone_indexes(work: Work, source: str) -> None:
    """Record and drop the late indexes of those targets of a source that are empty and will be large."""
    states = work.meta.sources.all()
    if any(state.phase is Phase.SYNC for state in states):
        return
    own = {shard.target for shard in work.meta.structures.shards(source)}
    noted = work.meta.late_indexes.all()
    for target, (rows, _) in work.meta.chunks.totals().items():
        if target in own and target not in noted and rows >= work.limits.late_rows:
            _postpone(work, target)


def make_late_indexes(work: Work, seconds: int = 0) -> None:
    """Create the indexes of all targets with no row left to load; wait up to `seconds` for another session that does
    so.
    """
    noted = work.meta.late_indexes.all()
    if not noted or not _are_dumped(work):
        return
    totals = work.meta.chunks.totals()
    for target, indexes in noted.items():
        if not totals.get(target, (0, 0))[1]:
            _make(work, target, indexes, seconds)


def make_all(work: Work, seconds: int) -> None:
    """Create the indexes of all targets, also of those with rows left to load: no later call creates them."""
    for target, indexes in work.meta.late_indexes.all().items():
        with contextlib.suppress(TableMissing):
            _make(work, target, indexes, seconds)


def _are_dumped(work: Work) -> bool:
    phases = {state.source: state.phase for state in work.meta.sources.all()}
    return all(phases.get(source, Phase.NEW).order >= Phase.DUMPED.order for source in work.task.sources)


def _postpone(work: Work, target: TableId) -> None:
    with contextlib.closing(mysql.connect(work.target, "target")) as connection, target_guard(connection, target):
        if not keeps_pages(connection) or has_rows(connection, target):
            return
        indexes = late_indexes(read_schema(connection, target))
        if not indexes or target in work.meta.late_indexes.all():
            return
        work.meta.late_indexes.note(target, indexes)
        serverstate.limit_ddl_wait(connection, LOCK_WAIT_SECONDS)
        mysql.plain_mode(connection)
        try:
            mysql.query(connection, drop_statement(target, indexes))
        except StatementRefused as error:
            if error.errno != NEEDED_BY_FOREIGN_KEY:
                raise
            log.info("indexes kept table=%s: a foreign key needs one", target)


def _make(work: Work, target: TableId, indexes: tuple[LateIndex, ...], seconds: int) -> None:
    with contextlib.closing(mysql.connect(work.target, "target")) as connection, contextlib.ExitStack() as stack:
        try:
            stack.enter_context(target_guard(connection, target, seconds))
        except DdlStillRunning:
            if seconds:
                raise
            return
        if absent := missing(read_schema(connection, target), indexes):
            log.info("creating indexes table=%s indexes=%s", target, ", ".join(index.name for index in absent))
            mysql.plain_mode(connection)
            mysql.query(connection, add_statement(target, absent))
        work.meta.late_indexes.forget(target)
