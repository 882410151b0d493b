"""Reads and writes a window in one Spark task (executors): its rows do not leave the Python worker.

The parts of a window with one target are cut into slices of consecutive parts. While the server writes one slice, the
next is read, and it is compacted as soon as a session has no other slice to write (adapters/target/slices). So if the
server is the slower side, the slices become larger, and a key that changes often is written less often. The rows at
the end are the same for every cut. A window is not cut if slices could end in other rows than the whole:

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

An error between the slices undoes them; then the window is read and applied as a whole.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from unshard.adapters.spark import freeze_imports
from unshard.adapters.target import Slice, apply_slices
from unshard.core.rows.compaction import Collisions
from unshard.core.window.suspension import TargetRefused
from unshard.errors import UnshardError
from unshard.units.rows.apply import changes_of
from unshard.units.rows.changes import RUNS
from unshard.units.rows.windowjob import HeldPart, Part, WindowJob, bytes_of, fence_of
from unshard.units.window.tasks import (
    PartReader,
    Result,
    TargetReport,
    applied_to,
    coded,
    packed,
)

PIECE_BYTES = 2 << 20
"""A slice has one or more pieces of this size. The first has one, because nothing is written while it is read."""
SLICE_BYTES = 32 << 20
"""A slice ends with this size even if no session waits for it, because it is in memory."""


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the parts that were read, and the runs of each target."""

    results: list[Result] = field(default_factory=list)
    batches: dict[int, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))

    def read(self, job: WindowJob, parts: Sequence[Part]) -> "Found":
        """Read more parts into this value."""
        for part in parts:
            reader = PartReader(job, part)
            try:
                for target, runs in reader.runs():
                    self.batches[target].append(runs)
            except Exception as error:
                self.results.extend([coded(error), *reader.contradictions(error)])
            else:
                refused = (TargetRefused(job.targets[number], error) for number, error in reader.refused.items())
                self.results.extend([reader.report, *refused])
        return self

    def runs(self, target: int) -> pa.Table:
        """Return the runs of a target."""
        batches = self.batches.get(target, ())
        return pa.Table.from_batches(batches, batches[0].schema if batches else RUNS)


@dataclass(frozen=True, slots=True)
class ReadAndApply:
    """Both stages, as Spark calls them."""

    job: WindowJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for _ in batches:
            yield packed(self._results())

    def _results(self) -> Sequence[Result]:
        first, *rest = pieces_of(self.job)
        found = Found().read(self.job, first)
        if rest and (results := _in_slices(self.job, found, rest)):
            return results
        for parts in rest:
            found.read(self.job, parts)
        runs = {target: found.runs(target) for target in sorted(found.batches)}
        return [*found.results, *applied_to(self.job, runs, found.results)]


def pieces_of(job: WindowJob) -> Sequence[Sequence[Part]]:
    """Return the parts of a window in pieces; one piece if it cannot be cut."""
    if not _can_be_cut(job):
        return (job.parts,)
    made: list[list[Part]] = [[]]
    for part in job.parts:
        if made[-1] and bytes_of(*made[-1], part) > PIECE_BYTES:
            made.append([])
        made[-1].append(part)
    return made


def _can_be_cut(job: WindowJob) -> bool:
    is_safe = job.plan.safe or any(isinstance(part, HeldPart) and part.file.safe for part in job.parts)
    filters = any(reshaping.filters_changes for reshaping in job.reshapings.values())
    is_plain = job.collisions is Collisions.ERROR and not is_safe and not (filters or job.deferred or job.groups)
    return is_plain and len(job.targets) == 1 and bool(job.schemas[0].key)


def _in_slices(job: WindowJob, first: Found, rest: Sequence[Sequence[Part]]) -> Sequence[Result]:
    """Apply the window while it is read; return nothing if it must be applied as a whole."""
    results: list[Result] = []
    try:
        applied = apply_slices(
            job.writer, fence_of(job, 0), lambda is_waiting: _slices(job, first, rest, results, is_waiting)
        )
    except UnshardError:
        return ()  # Applying the window as a whole shows whether the error is caused by the slices only.
    except Exception as error:
        return (coded(error),)
    return () if applied is None else [*results, TargetReport(job.targets[0], applied)]


def _slices(
    job: WindowJob, first: Found, rest: Sequence[Sequence[Part]], results: list[Result], is_waiting: Callable[[], bool]
) -> Iterator[Slice]:
    """Yield the slices, and add the results of their parts to `results`; raises the error of a part."""
    left = sum(bytes_of(*parts) for parts in rest)
    yield _slice(job, first, 1 - left / job.bytes, results)
    found, size = Found(), 0
    for parts in rest:
        found.read(job, parts)
        size += bytes_of(*parts)
        if size >= min(left, SLICE_BYTES) or is_waiting():
            left -= size
            yield _slice(job, found, 1 - left / job.bytes, results)
            found, size = Found(), 0


def _slice(job: WindowJob, found: Found, read: float, results: list[Result]) -> Slice:
    for result in found.results:
        match result:
            case TargetRefused(error=error):
                raise error
            case UnshardError():
                raise result
    results += found.results
    return Slice(changes_of(job, 0, found.runs(0)), read)
