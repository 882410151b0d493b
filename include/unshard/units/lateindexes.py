"""Late indexes: a large empty target is loaded without the indexes that identify nothing; they are made at the end.

Row by row such an index costs more than the row, and two writers of one table wait for each other at its pages.
What is dropped is noted first; whoever finds a note and no row left to load makes what the table lacks.

| died                           | what happens                                                          |
|--------------------------------|-----------------------------------------------------------------------|
| after the note, before DROP    | the table has its indexes: the load is slower, the note goes at the end |
| after DROP, in the load        | the next load goes on; its end, or the handover, makes them           |
| while the server makes them    | its session holds the guard; the handover waits for it, then looks    |
| after that, before the note is gone | nothing is missing; the note goes                                |

No window begins before the handover, so no DDL of a shard ever meets a target without its indexes.
"""

import contextlib
import logging

from unshard.adapters import mysql
from unshard.adapters.structures import has_rows, read_schema
from unshard.core.lateindexes import LateIndex, add_statement, drop_statement, late_indexes, missing
from unshard.core.model import TableId
from unshard.core.progress import Phase
from unshard.errors.ddl import DdlStillRunning
from unshard.errors.source import StatementRefused, TableMissing
from unshard.units.execute import LOCK_WAIT_SECONDS, target_guard
from unshard.units.work import Work

log = logging.getLogger(__name__)

LATE_ROWS = 100_000
"""Below this, two ALTERs take longer than they save."""
MAKING_SECONDS = 6 * 3600
"""How long the handover waits for a session that makes the indexes, though whoever ordered it is dead."""
NEEDED_BY_FOREIGN_KEY = 1553


def postpone_indexes(work: Work, source: str) -> None:
    """Take the late indexes of those targets of a source that are empty and will be large."""
    states = work.meta.sources.all()
    if any(state.phase is Phase.SYNC for state in states):
        return
    own = {shard.target for shard in work.meta.structures.shards(source)}
    noted = work.meta.late_indexes.all()
    for target, (rows, _) in work.meta.chunks.totals().items():
        if target in own and target not in noted and rows >= LATE_ROWS:
            _postpone(work, target)


def make_late_indexes(work: Work, seconds: int = 0) -> None:
    """Make the indexes of all targets that have no row left to load; wait so long for another who is at it."""
    noted = work.meta.late_indexes.all()
    if not noted or not _are_dumped(work):
        return
    totals = work.meta.chunks.totals()
    for target, indexes in noted.items():
        if not totals.get(target, (0, 0))[1]:
            _make(work, target, indexes, seconds)


def make_all(work: Work, seconds: int) -> None:
    """Make the indexes of all targets, whatever is left to load: nobody will come back to them."""
    for target, indexes in work.meta.late_indexes.all().items():
        with contextlib.suppress(TableMissing):
            _make(work, target, indexes, seconds)


def _are_dumped(work: Work) -> bool:
    phases = {state.source: state.phase for state in work.meta.sources.all()}
    return all(phases.get(source, Phase.NEW).order >= Phase.DUMPED.order for source in work.task.sources)


def _postpone(work: Work, target: TableId) -> None:
    with contextlib.closing(mysql.connect(work.target, "target")) as connection, target_guard(connection, target):
        if "TiDB" in connection.get_server_info() or has_rows(connection, target):
            return
        indexes = late_indexes(read_schema(connection, target))
        if not indexes or target in work.meta.late_indexes.all():
            return
        work.meta.late_indexes.note(target, indexes)
        mysql.query(connection, "SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
        mysql.plain_mode(connection)
        try:
            mysql.query(connection, drop_statement(target, indexes))
        except StatementRefused as error:
            if error.errno != NEEDED_BY_FOREIGN_KEY:
                raise
            log.info("indexes stay table=%s: a foreign key needs one", target)


def _make(work: Work, target: TableId, indexes: tuple[LateIndex, ...], seconds: int) -> None:
    with contextlib.closing(mysql.connect(work.target, "target")) as connection, contextlib.ExitStack() as stack:
        try:
            stack.enter_context(target_guard(connection, target, seconds))
        except DdlStillRunning:
            if seconds:
                raise
            return
        if absent := missing(read_schema(connection, target), indexes):
            log.info("making indexes table=%s indexes=%s", target, ", ".join(index.name for index in absent))
            mysql.plain_mode(connection)
            mysql.query(connection, add_statement(target, absent))
        work.meta.late_indexes.forget(target)
