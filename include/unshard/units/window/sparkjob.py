"""Reads and writes a window in one Spark task (executors): its rows do not leave the Python worker.

The sections of a window (core.window.planning) are applied one after the other. If one of them fails, the driver
commits the window up to it.

The parts of a section with one target are cut into slices of consecutive parts. While the server writes one slice, the
next is read, and it is compacted as soon as a session has no other slice to write (adapters/target/apply). So if the
server is the slower side, the slices become larger, and a key that changes often is written less often. The rows at
the end are the same for every cut. A section is not cut if slices could end in other rows than the whole:

| not cut                                   | because                                                               |
|-------------------------------------------|-----------------------------------------------------------------------|
| tables without a key                      | one slice may insert a row and another delete it, and without a key   |
|                                           | the two cannot be matched                                             |
| safe mode, filters that leave changes out | REPLACE does not see rows of another shard: a row that moves from one |
|                                           | shard to another is followed only if all changes are compacted at once |
| `on-duplicate: replace` and `ignore`      | the same; with `error`, a key that another row has undoes the slices  |
| tables that foreign keys connect          | they are written in the order of the binlog                           |
| partial rows and deferred rows            | they are read from the target, and recorded, before anything is       |
|                                           | written                                                               |

An error between the slices undoes them; then the section is read and applied as a whole.

The Spark job of a window, as the driver starts it: read parts, shuffle their runs by target, apply them.

Each target has one applier, and reading is less work than writing. So a small window runs as one task without a
shuffle, because a shuffle would take longer than the reading. Several targets are read and written in parallel. The
code uses only the session of pyspark, so it is the same for spark-submit, Connect and local.

With a `local` master the executor is on this machine. Then a small window needs no Spark: the driver calls the function
of its single task itself, which takes milliseconds, while the start of a JVM takes seconds.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from unshard.adapters.spark import collect, columns, numbers, prepare_worker
from unshard.adapters.target import Changes, Slice, apply_slices
from unshard.adapters.target.targetrows import LineForm
from unshard.core.rows.compaction import Collisions
from unshard.core.window.suspension import TargetRefused
from unshard.errors import UnshardError
from unshard.units.rows.batchruns import RUNS
from unshard.units.rows.shuffle import PAYLOADS
from unshard.units.rows.targetwork import changes_of
from unshard.units.rows.windowjob import HeldPart, Part, WindowJob, bytes_of, fence_of
from unshard.units.window.tasks import (
    RESULTS,
    AppliedSections,
    ApplyTargets,
    NeedsText,
    PartReader,
    ReadParts,
    Result,
    RowsArePartial,
    TargetReport,
    applied_to,
    coded,
    error_in,
    packed,
)
from unshard.units.work import LIMITS, LazySpark, Limits

PIECE_BYTES = 2 << 20
"""A slice has one or more pieces of this size. The first has one, because nothing is written while it is read."""
SLICE_BYTES = 32 << 20
"""A slice ends with this size even if no session waits for it, because it is in memory."""


@dataclass(frozen=True, slots=True)
class FoundParts:
    """The results of the parts that were read, and the runs of each target."""

    results: list[Result] = field(default_factory=list)
    batches: dict[int, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))

    def read(self, job: WindowJob, parts: Sequence[Part]) -> "FoundParts":
        for part in parts:
            reader = PartReader(job, part)
            try:
                for target, runs in reader.runs():
                    self.batches[target].append(runs)
            except RowsArePartial:
                raise
            except Exception as error:
                self.results.extend([coded(error), *reader.contradictions(error)])
            else:
                refused = (TargetRefused(job.targets[number], error) for number, error in reader.refused.items())
                self.results.extend([reader.report, *refused])
        return self

    def runs(self, target: int) -> pa.Table:
        batches = self.batches.get(target, ())
        return pa.Table.from_batches(batches, batches[0].schema if batches else RUNS)


@dataclass(frozen=True, slots=True)
class ReadAndApply:
    """Both stages, as Spark calls them."""

    job: WindowJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        for _ in batches:
            yield packed(self.results())

    def results(self) -> Sequence[Result]:
        """Apply the sections one after the other, up to the first one with an error."""
        sections, results, done, form = self.job.sections, list[Result](), 0, self.job.writer.form
        while done < len(sections):
            applied = _in_slices([replace(section, form=form) for section in sections[done:]])
            results += applied.results
            done += applied.sections
            if done == len(sections):
                break
            if applied.needs_text:
                form = LineForm.TEXT
                continue
            try:
                whole = applied.errors or _as_a_whole(replace(sections[done], form=form))
            except RowsArePartial:
                form = LineForm.TEXT
                continue
            if error := next(filter(None, map(error_in, whole)), None):
                return [*results, AppliedSections(done, error)] if done else whole
            results += whole
            done += 1
        return results


@dataclass(slots=True)
class _Applied:
    """What was applied slice by slice, and an error that another attempt would meet too."""

    sections: int = 0
    results: list[Result] = field(default_factory=list)
    errors: Sequence[Result] = ()
    needs_text: bool = False
    """The next section has partial rows."""


def _as_a_whole(job: WindowJob) -> Sequence[Result]:
    found = FoundParts().read(job, job.parts)
    runs = {target: found.runs(target) for target in sorted(found.batches)}
    return [*found.results, *applied_to(job, runs, found.results)]


def can_be_cut(job: WindowJob) -> bool:
    """Whether every cut into slices ends in the same rows."""
    is_safe = job.plan.safe or any(isinstance(part, HeldPart) and part.file.safe for part in job.parts)
    filters = any(reshaping.filters_changes for reshaping in job.reshapings.values())
    is_plain = job.collisions is Collisions.ERROR and not is_safe and not (filters or job.deferred or job.groups)
    return is_plain and len(job.targets) == 1 and bool(job.schemas[0].key)


def _in_slices(sections: Sequence[WindowJob]) -> _Applied:
    """Apply the first sections while they are read; the one after them must be applied as a whole."""
    applied, first = _Applied(), sections[0]
    if not can_be_cut(first) or (len(sections) == 1 and len(list(pieces_of(first.parts))) < 2):
        return applied
    reports: list[list[Result]] = [[] for _ in sections]
    fences = [fence_of(job, 0) for job in sections]
    try:
        for each in apply_slices(first.writer, fences, lambda is_waiting: _slices(sections, reports, is_waiting)):
            applied.results += chain.from_iterable(reports[applied.sections : each.sections])
            applied.results.append(TargetReport(first.targets[0], each.applied))
            applied.sections = each.sections
    except RowsArePartial:
        applied.needs_text = True
    except UnshardError:
        pass  # Applying the section as a whole shows whether the error is caused by the slices only.
    except Exception as error:
        applied.errors = (coded(error),)
    return applied


def _slices(
    sections: Sequence[WindowJob], reports: Sequence[list[Result]], is_waiting: Callable[[], bool]
) -> Iterator[Slice]:
    """Yield the slices, and add the results of their parts to those of their section; raises the error of a part."""
    for number, job in enumerate(sections):
        found, size, left = FoundParts(), 0, job.bytes
        most = SLICE_BYTES if number else 0
        for parts in pieces_of(job.parts):
            found.read(job, parts)
            size += bytes_of(*parts)
            if size >= min(left, most) or is_waiting():
                left -= size
                yield Slice(number, _changes(job, found, reports[number]), 1 - left / job.bytes)
                found, size, most = FoundParts(), 0, SLICE_BYTES


def pieces_of(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Yield consecutive parts together, up to the size of a piece."""
    piece: list[Part] = []
    for part in parts:
        if piece and bytes_of(*piece, part) > PIECE_BYTES:
            yield piece
            piece = []
        piece.append(part)
    if piece:
        yield piece


def _changes(job: WindowJob, found: FoundParts, results: list[Result]) -> Changes:
    for result in found.results:
        match result:
            case TargetRefused(error=error):
                raise error
            case UnshardError():
                raise result
    results += found.results
    return changes_of(job, 0, found.runs(0))


# --- the Spark job of a window


MOST_APPLIERS = 8


def run_job(opened: Callable[[], Any], job: WindowJob, limits: Limits = LIMITS) -> tuple[Result, ...]:
    """Run the window and return its results; coded errors are returned as results. `opened` returns the session."""
    workers = workers_for(job, limits)
    if workers == 1 and job.bytes <= limits.small_bytes and isinstance(opened, LazySpark) and opened.is_local:
        return tuple(ReadAndApply(job).results())
    spark = opened()
    if workers == 1:
        return _results(spark, lambda: numbers(spark, 1).mapInArrow(ReadAndApply(job), columns(RESULTS)))
    results = _results(spark, lambda: _two_stages(spark, replace(job, form=job.writer.form), workers))
    if any(isinstance(result, NeedsText) for result in results):
        return _results(spark, lambda: _two_stages(spark, replace(job, form=LineForm.TEXT), workers))
    return results


def _results(spark: Any, frame: Callable[[], Any]) -> tuple[Result, ...]:
    bodies = collect(spark, frame).column("body").to_pylist()
    return tuple(pickle.loads(body) for body in bodies)  # noqa: S301  written by our own executors


def _two_stages(spark: Any, job: WindowJob, workers: int) -> Any:
    tasks = numbers(spark, workers)
    slots = min(max(len(job.targets), 1), MOST_APPLIERS)
    payloads = tasks.mapInArrow(ReadParts(job, workers, slots), columns(PAYLOADS)).repartitionById(slots, "slot")
    return payloads.mapInArrow(ApplyTargets(job), columns(RESULTS))


def workers_for(job: WindowJob, limits: Limits) -> int:
    """Return the number of tasks that read."""
    if len(job.targets) == 1 and job.plan.borders:
        return 1
    if job.bytes <= (limits.alone_bytes if len(job.targets) == 1 else limits.small_bytes):
        return 1
    return max(1, min(len(job.parts), -(-job.bytes // limits.worker_bytes), limits.most_workers))
