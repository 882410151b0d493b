"""Switch the applications from the shards to the target: prove, wait until the sources are read-only, prove the rest.

Runs in the driver, with windows of its own, so it needs no live run beside it and does not mind one.

1. refuse to begin while something is in the way that only a person can remove (`obstacles`)
2. prove all ranges while the shards are written, in rounds (core/validate/cutoverstate.py says why each is shorter)
3. wait until all sources are read-only, or make them so; prove on meanwhile
4. apply the binlog to its end, prove what it has touched, create what the target lacks
5. if no binlog has grown since, store the certificate and pause the task; else go on with step 4

| what happens                       | effect                                                                      |
|------------------------------------|-----------------------------------------------------------------------------|
| an error, a signal or its time is over after step 3 | the sources get the values back that unshard has changed   |
| the process is killed before step 3| the same command goes on with the ranges that are not proven                |
| the process is killed after it     | the sources stay read-only: the same command goes on, `abort` puts them back|
| killed after the certificate       | the same command pauses the task and shows the certificate                  |

Values of a source are stored before they are changed.
"""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from unshard.adapters import mysql, serverstate, structures
from unshard.config import ShardMode
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import Location, TableId
from unshard.core.shown import listed
from unshard.core.structures.comparison import raise_number
from unshard.core.structures.foreignkeys import routed, without_like
from unshard.core.task.state import Phase
from unshard.core.validate.cutoverstate import (
    CutoverPhase,
    Obstacle,
    SourceSettings,
    StoredCutover,
    TableSum,
    Who,
    add_foreign_key,
    still_proven,
    total_of,
    touched_ranges,
)
from unshard.errors import UnshardError
from unshard.errors.meta import CutoverBlocked, CutoverDone, CutoverLate, CutoverNotProven
from unshard.units.ddl.coordinate import facts
from unshard.units.ddl.differences import differences
from unshard.units.full.load import MAKING_SECONDS, make_all
from unshard.units.full.targets import on_target
from unshard.units.task import lifecycle, live
from unshard.units.task.optimistic import follow_rules
from unshard.units.validate.evidence import binlog_ends, binlogs_since, positions
from unshard.units.validate.ranges import Sessions, TableCheck, number_of_target, numbers_of_shards
from unshard.units.validate.validate import (
    Incomparable,
    Settings,
    TableResult,
    Watch,
    compare_all,
    plan_checks,
)
from unshard.units.work import Work

CUTOVER, ABORT = "cutover", "abort cutover"
SHORT_SECONDS = 5.0
"""A round of proofs that takes no longer is short enough for the last one."""
SHRINKS = 0.7
"""A round that takes more than this part of the round before it is not followed by a shorter one."""
POLL_SECONDS = 0.05
REST_SECONDS = 1.0
"""Between two rounds while it waits for read-only sources."""
ALONE_SECONDS = 2.0
"""The server releases the lock of a process that was killed within that time."""
PENDING_SECONDS = 5.0
"""How long keys may be pending after the end of the binlog is applied."""
LIVE = Settings(wait=0.0, rests=0.0)
"""Ranges with changes on their way are due again in the next round, so nothing waits for them."""


@dataclass(frozen=True, slots=True)
class CutoverOptions:
    """How a cutover is run."""

    sets_read_only: bool = False
    """Whether it makes the sources read-only itself."""
    within: float = 300.0
    """Seconds for what it does while the sources are read-only."""
    wait: float = inf
    """Seconds that it waits for sources that others make read-only."""


Tell = Callable[[str], None]


# --- what is in the way


def obstacles(work: Work) -> tuple[Obstacle, ...]:
    """Return what is in the way, first what a person must remove."""
    found = _in_the_way(work) or [*_of_target(work)]
    return tuple(sorted(found, key=lambda each: [*Who].index(each.who)))


def _in_the_way(work: Work) -> list[Obstacle]:
    """Return what a person must remove."""
    return [*_of_task(work), *_of_rows(work)]


def _of_task(work: Work) -> Iterator[Obstacle]:
    you = partial(Obstacle, Who.YOU)
    if (pause := work.meta.pauses.get()) is not None:
        yield you("task", f"the task is {pause}", "unshard resume")
    for source in work.task.sources:
        state = work.meta.sources.get(source)
        if state is None or state.phase is not Phase.SYNC:
            phase = state.phase if state else Phase.NEW
            yield you(f"source {source}", f"its phase is {phase}, not {Phase.SYNC}", "unshard run")
    for lock in facts(work.meta):
        if lock.is_open:
            yield you(f"lock {lock.id}", f"it is open: {lock.ddl}", "unshard locks")
    joined = work.task.shard_mode is ShardMode.OPTIMISTIC
    for view in differences(work.meta, on_target(work.task, work.target), follow_rules(work)) if joined else ():
        yield you(str(view.target), f"its shards differ: {view.subject}", "unshard locks")
    for reload in work.meta.reloads.newest():
        if not reload.is_done:
            yield you(str(reload.shard), f"columns are read again: {', '.join(reload.columns)}", "unshard status")


def _of_rows(work: Work) -> Iterator[Obstacle]:
    you = partial(Obstacle, Who.YOU)
    for stop in work.meta.suspended_targets.all():
        yield you(str(stop.target), f"it is suspended for source {stop.source}", "unshard status, then unshard retry")
    held = Counter[TableId]()
    for state in work.meta.structures.shards():
        held[state.target] += sum(file.rows for file in state.held)
    for target, rows in held.items():
        if rows:
            yield you(str(target), f"{rows} rows are held after DDL", "unshard locks")
    for name, count in work.meta.row_errors.counts().items():
        yield you(name, f"the target lacks {count} diverted rows", "unshard row-errors")
    for each in work.meta.collisions.all(only_open=True):
        shared = each.collision
        yield you(str(shared.target), f"{shared.shard} has a key of another shard: {shared.key}", "unshard collisions")


def _of_target(work: Work) -> Iterator[Obstacle]:
    for target, indexes in work.meta.late_indexes.all().items():
        names = ", ".join(index.name for index in indexes)
        yield Obstacle(Who.RUN, str(target), f"the load has left indexes for later: {names}")
    for statement in _missing(work, _comparable(plan_checks(work))):
        yield Obstacle(Who.RUN, "target", statement)
    for proof in work.meta.judged_ranges.proofs():
        yield Obstacle(Who.RUN, str(proof.target), f"{proof}; the rest is proven while the shards are written")
    for kind, lacking in _programs(work).items():
        yield Obstacle(Who.LATER, kind, f"sources have {kind}s that the target lacks: {listed(lacking)}")


def _comparable(checks: Sequence[TableCheck | Incomparable]) -> list[TableCheck]:
    return [check for check in checks if isinstance(check, TableCheck)]


def _missing(work: Work, checks: Sequence[TableCheck]) -> list[str]:
    """Return the statements for the target that a cutover executes after the last row."""
    statements = []
    with Sessions() as sessions:
        for check in checks:
            number, after_rows = number_of_target(sessions, check)
            wanted = max([after_rows, *numbers_of_shards(sessions, check).values()])
            statements += [raise_number(check.target.table, wanted)] if wanted > number else []
    with work.target_connection() as connection:
        keys = [*structures.read_foreign_keys(connection, [check.target.table for check in checks])]
    for source in work.task.sources:
        shards = [table for check in checks for table in check.tables_by_source.get(source, ())]
        with work.source_connection(source) as connection:
            found = [key for key in structures.read_foreign_keys(connection, shards) if key.child in shards]
        lacking = without_like(routed(found, work.task.instance(source).routing.target_of)[0], keys)
        keys += lacking
        statements += map(add_foreign_key, lacking)
    return statements


def _programs(work: Work) -> Mapping[str, list[str]]:
    """Return the names of triggers and views of the shards' schemas that no schema of the targets has."""
    states = work.meta.structures.shards()
    with work.target_connection() as connection:
        there = structures.read_programs(connection, sorted({state.target.schema for state in states}))
    known = {(kind, name.lower()) for kind, _, name in there}
    lacking: dict[str, list[str]] = {}
    for source in work.task.sources:
        schemas = sorted({state.shard.table.schema for state in states if state.shard.source == source})
        with work.source_connection(source) as connection:
            for kind, schema, name in structures.read_programs(connection, schemas):
                if (kind, name.lower()) not in known:
                    lacking.setdefault(kind, []).append(f"{source} {schema}.{name}")
    return lacking


# --- the run


def run_cutover(
    work: Work,
    command: IssuedCommand,
    options: CutoverOptions,
    tell: Tell = lambda _: None,
    watch: Watch = lambda _: None,
) -> StoredCutover:
    """Cut the task over, or go on with its cutover; return it with its certificate.

    Raises CutoverBlocked, CutoverNotProven and CutoverLate.
    """
    with _alone(work):
        stored = work.meta.cutovers.get() or _new(work)
        if not stored.is_done:
            if stored.phase is CutoverPhase.PROVING:
                _refuse_obstacles(work)
            with _Windows(work) as windows:
                stored = _Cutover(work, command, options, tell, watch, windows, stored).run()
        lifecycle.pause(work, str(command.by), command.via, f"it was cut over at {_certified(stored)['done_at']}")
    return stored


@contextlib.contextmanager
def _alone(work: Work) -> Iterator[None]:
    """Refuse a second cutover of the task at the same time; raises CutoverBlocked."""
    with work.target_connection() as connection:
        if not serverstate.take_lock(connection, f"unshard cutover {work.task.name}"[:64], ALONE_SECONDS):
            raise CutoverBlocked(work.task.name, 1, "another process runs it or aborts it: end that process first")
        yield


def _certified(stored: StoredCutover) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stored.certificate)
    return found


def _new(work: Work) -> StoredCutover:
    number = int(work.meta.judged_ranges.now().timestamp() * 1000)
    return StoredCutover(CutoverPhase.PROVING, number, positions(work, work.task.sources))


def _refuse_obstacles(work: Work) -> None:
    if found := _in_the_way(work):
        raise CutoverBlocked(work.task.name, len(found), str(found[0]))


class _Windows:
    """Windows of all sources, in a thread, for as long as the block runs."""

    def __init__(self, work: Work) -> None:
        self._work, self._ended = work, threading.Event()
        self._died: BaseException | None = None
        self._tally = live.RunTally(work.limits.pause_seconds)
        self._thread = threading.Thread(target=self._follow, name="windows of the cutover", daemon=True)

    def __enter__(self) -> "_Windows":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        ends = live.Ends(is_asked=lambda _: self._ended.is_set(), retries=inf, rest_seconds=0.03, look_seconds=0.2)
        try:
            live.follow(self._work, self._work.task.sources, ends, self._tally, lambda _: None)
        except BaseException as error:
            self._died = error

    def wait_for(self, ends: Mapping[str, Location], deadline: float, seconds: float) -> None:
        """Wait until the windows have passed these positions; raises CutoverLate."""
        while (behind := self._behind(ends)) and self._died is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if self._died is not None:
            raise self._died
        if behind:
            for trouble in [*self._tally.errors.values()]:
                raise trouble.error
            raise CutoverLate(round(seconds), f"the windows of source {behind[0]} have not passed {ends[behind[0]]}")

    def _behind(self, ends: Mapping[str, Location]) -> list[str]:
        reached = positions(self._work, [*ends])
        return [source for source, end in ends.items() if source not in reached or reached[source] < end]


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of proofs: what was compared, and the result of each."""

    checks: Sequence[TableCheck]
    results: Sequence[TableResult]


@dataclass(slots=True)
class _Cutover:
    """One run of a cutover."""

    work: Work
    command: IssuedCommand
    options: CutoverOptions
    tell: Tell
    watch: Watch
    windows: _Windows
    stored: StoredCutover

    def run(self) -> StoredCutover:
        if self.stored.phase is CutoverPhase.PROVING:
            self._keep()
            make_all(self.work, MAKING_SECONDS)
            self._prove_in_rounds()
        try:
            self._become_read_only()
            self._finish(time.monotonic() + self.options.within)
        except BaseException:
            restore(self.work, self.tell)
            raise
        return self.stored

    def _keep(self, **changed: Any) -> None:
        self.stored = replace(self.stored, **changed)
        self.work.meta.cutovers.put(self.stored)

    def _prove_in_rounds(self) -> None:
        last = inf
        while True:
            began = time.monotonic()
            results = self._round(LIVE).results
            took = time.monotonic() - began
            moving = sum(not each.equal for each in results)
            self.tell(f"a round of proofs took {took:.1f} s; {moving} of {len(results)} tables have changes on the way")
            if took <= SHORT_SECONDS or took > SHRINKS * last:
                return
            last = took

    def _round(self, settings: Settings) -> _Round:
        """Prove the ranges that are due; raises CutoverNotProven for a difference."""
        work, before, still = self.work, positions(self.work, self.work.task.sources), {}
        planned = plan_checks(work)
        for each in planned:
            if isinstance(each, Incomparable):
                raise CutoverNotProven(str(each.target), str(each.error))
        checks = _comparable(planned)
        with binlogs_since(work, self.stored.checkpoints) as binlogs:
            for check in checks:
                target, key = check.target.table, check.comparison.key
                touched = binlogs.touched(target, check.tables_by_source, key)
                columns = [check.target.schema.column(name) for name in key]
                still[target] = still_proven(self.stored.number, touched_ranges(touched, columns))
        settings = replace(settings, number=self.stored.number, still_proven=still)
        results = compare_all(work, checks, settings, self.watch)
        for found in results:
            if found.error or found.differs:
                raise CutoverNotProven(str(found.target), _why_not(found))
        self._keep(checkpoints=before)
        return _Round(checks, results)

    def _become_read_only(self) -> None:
        """Wait until no application writes to a source, or see to it."""
        if self.options.sets_read_only or self.stored.changed:
            found = self.stored.changed or _settings_of(self.work)
            self._keep(phase=CutoverPhase.READ_ONLY, changed=found)
            for each in found:
                with self.work.source_connection(each.source) as connection:
                    serverstate.limit_ddl_wait(connection, max(1, int(self.options.within)))
                    serverstate.set_read_only(connection, {name: "ON" for name, _ in each.found})
        began, told = time.monotonic(), list[str]()
        while writable := _writable(self.work):
            if time.monotonic() - began > self.options.wait:
                raise CutoverLate(round(self.options.wait), f"sources are not read-only: {listed(writable)}")
            if writable != told:
                self.tell(f"waits until these sources are read-only: {listed(writable)}")
            told = writable
            self._round(LIVE)  # so that the last round stays short
            time.sleep(REST_SECONDS)
        self._keep(phase=CutoverPhase.READ_ONLY, read_only_at=self.work.meta.judged_ranges.now())
        self.tell("the sources are read-only")

    def _finish(self, deadline: float) -> None:
        """Apply and prove what is left, until no binlog has grown meanwhile and each range has its sum."""
        end, before, sums = binlog_ends(self.work, self.work.task.sources), None, list[TableSum]()
        while end != before or any(each.is_incomplete for each in sums):
            if time.monotonic() > deadline:
                reason = "a source is written although it is read-only" if end != before else "a range has no sum yet"
                raise CutoverLate(round(self.options.within), reason)
            self.windows.wait_for(end, deadline, self.options.within)
            _refuse_obstacles(self.work)
            last = self._round(Settings(wait=PENDING_SECONDS, rests=0.0))
            for each in last.results:
                if not each.equal:
                    raise CutoverNotProven(str(each.target), _why_not(each))
            if writable := _writable(self.work):
                raise CutoverNotProven("any table", f"these sources are not read-only any more: {listed(writable)}")
            sums = [total_of(self.work.meta.judged_ranges.of(each.target, each.key)) for each in last.results]
            before, end = end, binlog_ends(self.work, end)
        created = self._create_missing(last.checks)
        certificate = self._certificate(last.results, sums, end, created)
        self._keep(phase=CutoverPhase.DONE, certificate=json.dumps(certificate, ensure_ascii=False))

    def _create_missing(self, checks: Sequence[TableCheck]) -> list[str]:
        statements = _missing(self.work, checks)
        with self.work.target_connection() as connection:
            mysql.uncheck_foreign_keys(connection)  # the sources have checked these rows
            for statement in statements:
                self.tell(f"target: {statement}")
                mysql.query(connection, statement)
        return statements

    def _certificate(
        self,
        results: Sequence[TableResult],
        sums: Sequence[TableSum],
        ends: Mapping[str, Location],
        created: Sequence[str],
    ) -> dict[str, Any]:
        work, began, now = self.work, self.stored.read_only_at, self.work.meta.judged_ranges.now()
        tables = []
        for each, found in zip(results, sums, strict=True):
            table = {"target": str(each.target), "shards": each.shards, "rows": found.rows, "checksum": found.checksum}
            tables.append({**table, "compared": [*each.compared]})
        gtids = {source: work.meta.checkpoints.get(source) for source in ends}
        return {
            "task": work.task.name,
            "by": str(self.command.by),
            "reason": self.command.reason,
            "read_only_at": began.isoformat() if began else None,
            "done_at": now.isoformat(),
            "read_only_seconds": round((now - began).total_seconds(), 3) if began else None,
            "sources": [
                {"source": source, "position": str(end), "gtid": there.gtid if (there := gtids[source]) else ""}
                for source, end in ends.items()
            ],
            "tables": tables,
            "created": created,
        }


def _why_not(found: TableResult) -> str:
    if found.error:
        return str(found.error)
    if found.differences:
        return "; ".join(f"{each.kind} {each.named(found.named_by)}" for each in found.differences[:3])
    if found.lost_columns:
        return f"the target lacks column {found.lost_columns[0]}"
    if found.coming_columns:
        return f"column {found.coming_columns[0]} is on its way"
    return found.why_pending or f"{len(found.pending)} keys have changes on their way"


# --- the sources


def _settings_of(work: Work) -> tuple[SourceSettings, ...]:
    """Return the values of each source that is not read-only yet."""
    found = []
    for source in work.task.sources:
        with work.source_connection(source) as connection:
            values = serverstate.read_only_variables(connection)
        if not serverstate.is_read_only(values):
            found.append(SourceSettings(source, tuple(values.items())))
    return tuple(found)


def _writable(work: Work) -> list[str]:
    return [each.source for each in _settings_of(work)]


def restore(work: Work, tell: Tell = lambda _: None) -> list[str]:
    """Give the sources back what a cutover has changed, unless it is done; return those sources.

    A source that does not answer is left for the next call.
    """
    stored = work.meta.cutovers.get()
    if stored is None or stored.is_done:
        return []  # the answer to the COMMIT may be lost, but the certificate is valid
    left, done, error = list[SourceSettings](), list[str](), None
    for each in stored.changed:
        try:
            with work.source_connection(each.source) as connection:
                serverstate.set_read_only(connection, dict(each.found))
            done.append(each.source)
        except UnshardError as refused:
            left.append(each)
            error = refused
    if done:
        tell(f"sources take changes again, as before the cutover: {listed(done)}")
    phase = CutoverPhase.READ_ONLY if left else CutoverPhase.PROVING
    work.meta.cutovers.put(replace(stored, phase=phase, changed=tuple(left), read_only_at=None))
    if error is not None:
        raise error
    return done


def abort_cutover(work: Work, command: IssuedCommand) -> list[str] | None:
    """End a cutover; return the sources that are as before it, or None without a cutover. Raises CutoverDone."""
    with _alone(work):
        stored = work.meta.cutovers.get()
        if stored is None:
            return None
        if stored.is_done:
            raise CutoverDone(work.task.name, str(_certified(stored)["done_at"]))
        done = restore(work)
        work.meta.cutovers.remove()
        work.meta.pauses.record(command)
    return done


def cutover_document(stored: StoredCutover) -> dict[str, Any]:
    """Return the state of a cutover as JSON."""
    at = stored.read_only_at
    return {
        "phase": stored.phase,
        "read_only_since": at.isoformat() if at else None,
        "changed_sources": [each.source for each in stored.changed],
        "certificate": _certified(stored) if stored.certificate else None,
    }
