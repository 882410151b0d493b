"""The two Spark stages of a window (executors): stage 1 reads and compacts parts, stage 2 applies whole targets.

Stage 1 decodes binlog and reads held files, writes the rows that must wait to Parquet, and sends the other
changes on as runs. Stage 2 gets all runs of a target in one partition and applies them in one fenced transaction.
Spark may repeat a task of each stage, or the single task that does both in a small window, so no stage relies on
running once.

| death                                   | what happens                                                      |
|-----------------------------------------|-------------------------------------------------------------------|
| stage 1, in a part                      | Spark repeats it, or the window runs again; the name of a held    |
|                                         | file has the epoch, and the file counts only after the commit     |
| stage 2, before the COMMIT of a target  | that target rolls back; the others are applied; it runs again     |
| stage 2, after it                       | the fence of the target has the window; it runs again             |

A coded error of stage 1 is sent to *all* appliers instead of runs, so that no applier applies half a window. So is
the message that a window has partial rows. Then both stages run again, with lines of text.

A small window is read and written in one Spark task: its rows do not leave the Python worker.

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
"""

import contextlib
import hashlib
import pickle
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from urllib.parse import quote

import pyarrow as pa

from unshard.adapters.spark import prepare_worker
from unshard.adapters.target import Applied, Changes, Slice, apply_changes, apply_slices
from unshard.adapters.target.applyinorder import StepRefused
from unshard.adapters.target.evaluator import ExpressionEvaluator
from unshard.adapters.target.targetrows import LineForm
from unshard.binlog import rawrows
from unshard.binlog.decoder import decode_range
from unshard.binlog.rawrows import BEYOND, RowSpan, extract
from unshard.core.ddl.queue import HeldFile
from unshard.core.model import Location, Shard, TableId
from unshard.core.rows.compaction import Collisions
from unshard.core.rules.reshaping import AS_IT_IS
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Contradiction, Disposition
from unshard.core.window.suspension import ABOUT_ONE_TARGET, TargetRefused
from unshard.errors import UnshardError
from unshard.errors.meta import SparkTaskCrashed
from unshard.errors.rows import ColumnCountDiffers, ColumnTypeDiffers, KeyOutOfOrder, RowsContradict, UnsupportedColumn
from unshard.units.rows.batchruns import RUNS, BatchOrigin, Filtering, changes_in, runs_of
from unshard.units.rows.conversion import Conversion
from unshard.units.rows.shuffle import PAYLOADS, Run, message, messages_in, of_target, payloads, targets_in
from unshard.units.rows.sparserows import in_pairs, is_sparse, with_masks
from unshard.units.rows.targetwork import apply_group, changes_of, images_of, shown_key
from unshard.units.rows.windowjob import BinlogPart, HeldPart, Part, Rows, WindowJob, bytes_of, fence_of

RESULTS = pa.schema([("body", pa.binary())])
BATCHES_PER_PART = 1 << 32
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class PartReport:
    """The number of row changes of a part, by what became of them."""

    applied: int = 0
    """Changes that the task's filters let through to a target."""
    filtered: int = 0
    released: int = 0
    """Applied and filtered changes that were held before."""
    held: tuple[HeldFile, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetReport:
    """The changes that a target got."""

    target: TableId
    applied: Applied


@dataclass(frozen=True, slots=True)
class NeedsText:
    """The window has partial rows, so nothing was applied, and its lines must be text."""


@dataclass(frozen=True, slots=True)
class AppliedSections:
    """The number of sections that the target has, and the error in the next one."""

    number: int
    error: UnshardError


Result = PartReport | TargetReport | NeedsText | AppliedSections | TargetRefused | Contradiction | UnshardError
CONTRADICTS = (ColumnCountDiffers, ColumnTypeDiffers, UnsupportedColumn)
"""Errors about rows without the structure of their shard."""


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Stage 1, as Spark calls it: each row of the input is the number of a stripe of parts."""

    job: WindowJob
    workers: int
    slots: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        for batch in batches:
            for stripe in batch.column(0).to_pylist():
                for part in self.job.parts[stripe :: self.workers]:
                    yield from self._read(part)

    def _read(self, part: Part) -> Iterator[pa.RecordBatch]:
        reader = PartReader(self.job, part)
        try:
            yield from payloads(reader.runs(), self.slots, leaders=self.job.leaders)
        except RowsArePartial:
            yield from (message(slot, pickle.dumps(NeedsText())) for slot in range(self.slots))
        except Exception as error:
            poison = pickle.dumps(coded(error))
            yield from (message(slot, poison) for slot in range(self.slots))
            yield from (message(0, pickle.dumps(found)) for found in reader.contradictions(error))
        else:
            yield message(0, pickle.dumps(reader.report))
            for number, refusal in reader.refused.items():
                refused = TargetRefused(self.job.targets[number], refusal)
                yield message(self.job.leaders.get(number, number) % self.slots, pickle.dumps(refused))


@dataclass(frozen=True, slots=True)
class ApplyTargets:
    """Stage 2, as Spark calls it: a partition holds all runs of its targets, and the messages."""

    job: WindowJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        found = pa.Table.from_batches(list(batches), PAYLOADS)
        messages = messages_in(found)
        results = [pickle.loads(body) for body in messages]  # noqa: S301  written by stage 1 of this job
        runs = {target: of_target(found, target) for target in targets_in(found)}
        yield packed([*results, *applied_to(self.job, runs, results)])


def applied_to(job: WindowJob, runs: Mapping[int, pa.Table], results: Sequence[Result]) -> Iterator[Result]:
    """Apply the runs of each target, unless reading has failed or must be repeated."""
    if any(isinstance(result, UnshardError | NeedsText) for result in results):
        return
    refused = {result.target for result in results if isinstance(result, TargetRefused)}
    for group in job.groups:
        # If a table of a group refuses its rows, none of the group gets any.
        if not runs.keys().isdisjoint(group) and refused.isdisjoint(job.targets[target] for target in group):
            yield from _applied_group(job, group, runs)
    for target, its in runs.items():
        if target not in job.leaders and job.targets[target] not in refused:
            yield _applied(job, target, its)


def _applied_group(job: WindowJob, group: Sequence[int], runs: Mapping[int, pa.Table]) -> Sequence[Result]:
    try:
        return [TargetReport(target, applied) for target, applied in apply_group(job, group, runs).items()]
    except StepRefused as refused:
        if isinstance(refused.error, ABOUT_ONE_TARGET):
            return [TargetRefused(refused.table, refused.error)]
        return [refused.error]
    except Exception as error:
        return [coded(error)]


def _applied(job: WindowJob, target: int, runs: pa.Table) -> Result:
    try:
        return TargetReport(job.targets[target], apply_target(job, target, runs))
    except ABOUT_ONE_TARGET as error:
        return TargetRefused(job.targets[target], error)
    except Exception as error:
        return coded(error)


def packed(results: Sequence[Result]) -> pa.RecordBatch:
    """Return results as the executor sends them to the driver."""
    bodies = [pickle.dumps(result) for result in results]
    return pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], schema=RESULTS)


def apply_target(job: WindowJob, target: int, runs: pa.Table) -> Applied:
    """Apply all runs of one target table."""
    return apply_changes(job.writer, fence_of(job, target), changes_of(job, target, runs))


def error_in(result: Result) -> UnshardError | None:
    """Return the error in a result, if it is one."""
    match result:
        case UnshardError():
            return result
        case TargetRefused(error=error):
            return error
        case Contradiction(shard=shard, location=location, words=words):
            return RowsContradict(str(shard), str(location), words)
    return None


def coded(error: Exception) -> UnshardError:
    """Return a coded error itself, and any other one as SparkTaskCrashed, which can be pickled."""
    if isinstance(error, UnshardError):
        return error
    crash = SparkTaskCrashed(f"{type(error).__name__}: {error}")
    crash.add_note("".join(traceback.format_exception(error)))
    return crash


class RowsArePartial(Exception):
    """Rows lack columns, so their lines must be text."""


class PartReader:
    """Reads one part; its report is complete when its runs are exhausted."""

    def __init__(self, job: WindowJob, part: Part) -> None:
        self._job, self._part = job, part
        self._batches = self._images = 0
        self._is_renumbered = False
        """Whether the batches at present number their rows from 0 again and again: extracts are decoded in pieces."""
        self._filtering = Filtering(ExpressionEvaluator(job.writer, job.meta_schema, job.time_zone), job.structures)
        self._waiting: dict[Disposition, list[pa.RecordBatch]] = defaultdict(list)
        self.report = PartReport()
        self.refused: dict[int, UnshardError] = {}
        """Targets, by number, whose rows cannot be read, filtered or converted."""

    def runs(self) -> Iterator[Run]:
        """Yield the runs of the rows that are applied, and store those that are held."""
        with contextlib.closing(self._filtering):
            match self._part:
                case HeldPart():
                    yield from self._released(self._part)
                case BinlogPart():
                    yield from self._decoded(self._part)
        held = tuple(self._store(disposition, batches) for disposition, batches in self._waiting.items())
        self.report = replace(self.report, held=held)

    def _released(self, part: HeldPart) -> Iterator[Run]:
        safe, self._is_renumbered = self._job.plan.safe or part.file.safe, part.file.is_raw
        rows = Rows(part.file.shard, part.file.structure, part.target, part.file.seq)
        for batch in self._rows_of(part.file):
            self.report = replace(self.report, released=self.report.released + changes_in(batch))
            yield from self._let_through(rows, batch, safe)

    def _rows_of(self, file: HeldFile) -> Iterator[pa.RecordBatch]:
        if not file.is_raw:
            return in_pairs(self._job.storage.read_batches(file.path))
        pieces = self._job.storage.read_batches(file.path, rows=1)
        return rawrows.decode(pieces, self._job.structures[file.structure], file.shard.source)

    def _decoded(self, part: BinlogPart) -> Iterator[Run]:
        source = self._job.plan.source
        bytes_ = self._job.relay.read(source, part.segment, part.start, part.end)
        origin = replace(bytes_.origin, committed=part.committed)
        for disposition in part.dispositions:
            span = _span(disposition, part.file)
            if not disposition.structure:
                pieces = list(extract(bytes_.data, bytes_.checksum, disposition.shard.table, span, origin))
                self._waiting |= {disposition: pieces} if pieces else {}
            elif disposition.until is not None:
                fitting = extract(bytes_.data, bytes_.checksum, disposition.shard.table, span, origin)
                self._is_renumbered = True
                for batch in rawrows.decode(fitting, self._job.structures[disposition.structure], source):
                    yield from self._decided(disposition, batch)
        self._is_renumbered = False
        by_table = self._decoded_at_once(part)
        if not by_table:
            return
        wanted = {table: self._job.structures[d.structure] for table, d in by_table.items()}
        for table, batch in decode_range(bytes_.data, bytes_.checksum, wanted, _starts(by_table, part.file), origin):
            yield from self._decided(by_table[table], batch)

    def _decoded_at_once(self, part: BinlogPart) -> dict[TableId, Disposition]:
        return {d.shard.table: d for d in part.dispositions if d.structure and d.until is None}

    def _decided(self, disposition: Disposition, batch: pa.RecordBatch) -> Iterator[Run]:
        if disposition.hold is not None:
            self._waiting[disposition].append(batch)
            return
        rows = Rows(disposition.shard, disposition.structure, disposition.target)
        yield from self._let_through(rows, batch, self._job.plan.safe)

    def contradictions(self, error: Exception) -> Iterator[Contradiction]:
        """Yield the contradicting shards of the part if the error says that rows contradict the tracked structure."""
        part = self._part
        if not isinstance(error, CONTRADICTS) or not isinstance(part, BinlogPart):
            return
        by_table, source = self._decoded_at_once(part), self._job.plan.source
        bytes_ = self._job.relay.read(source, part.segment, part.start, part.end)
        wanted = {table: self._job.structures[d.structure] for table, d in by_table.items()}
        origin = replace(bytes_.origin, committed=part.committed)
        for misfit in rawrows.misfits(bytes_.data, bytes_.checksum, wanted, _starts(by_table, part.file), origin):
            location = Location(part.file, misfit.position)
            yield Contradiction(
                by_table[misfit.table].shard,
                part.segment,
                part.start,
                location,
                misfit.columns,
                misfit.words,
                part.ordinal,
                part.committed,
            )

    def _let_through(self, rows: Rows, batch: pa.RecordBatch, safe: bool) -> Iterator[Run]:
        """Compact the changes that the filters let through; if filters leave gaps, they are written as in safe mode."""
        reshaping = self._job.reshapings.get(rows.shard.table, AS_IT_IS)
        number = self._job.targets.index(rows.target)
        if number in self.refused:
            return
        try:
            together = number in self._job.tracked
            kept = self._filtering.passing(reshaping, rows.shard, rows.structure, batch, in_pairs=together)
            self._count(batch, kept)
            if not kept.num_rows:
                return
            compacted = self._compacted(rows, number, kept, safe or reshaping.filters_changes, safe)
        except ABOUT_ONE_TARGET as error:
            self.refused[number] = error
        else:
            yield compacted

    def _count(self, batch: pa.RecordBatch, kept: pa.RecordBatch) -> None:
        let_through = changes_in(kept)
        self.report = replace(
            self.report,
            applied=self.report.applied + let_through,
            filtered=self.report.filtered + changes_in(batch) - let_through,
        )

    def _compacted(self, rows: Rows, number: int, batch: pa.RecordBatch, safe: bool, unsure: bool) -> Run:
        conversion, layout = self._job.conversion(rows)
        if is_sparse(batch) and conversion.destination.form is not LineForm.TEXT:
            raise RowsArePartial
        seq = self._part.ordinal * BATCHES_PER_PART + self._batches
        tracked = number in self._job.tracked
        self._batches += batch.num_rows if is_sparse(batch) or tracked else 1
        origin = BatchOrigin(self._job.shards.index(rows.shard), layout, seq, safe, str(rows.shard), unsure, tracked)
        if number in self._job.leaders:
            return number, self._in_order(batch, conversion, origin)
        runs, broken = runs_of(batch, conversion, origin)
        if broken is not None and not safe and self._job.collisions is Collisions.ERROR:
            raise KeyOutOfOrder(str(rows.shard), str(rows.target), shown_key(self._job, number, broken))
        return number, runs

    def _in_order(self, batch: pa.RecordBatch, conversion: Conversion, origin: BatchOrigin) -> pa.RecordBatch:
        numbers = batch.column(1)
        if self._is_renumbered:
            numbers = pa.array(range(self._images, self._images + batch.num_rows), pa.int64())
            self._images += batch.num_rows
        is_held_unsure = isinstance(self._part, HeldPart) and self._part.file.safe
        is_unsure = self._job.is_unsure or is_held_unsure
        return images_of(batch, conversion, origin, self._job.ranks[self._part.ordinal], numbers, is_unsure=is_unsure)

    def _store(self, disposition: Disposition, batches: list[pa.RecordBatch]) -> HeldFile:
        plan, seq = self._job.plan, disposition.hold or 0
        path = held_path(disposition.shard, seq, self._job.begun, self._part.ordinal)
        is_raw = not disposition.structure
        batches = batches if is_raw else with_masks(batches)
        written = self._job.storage.write_batches(path, batches[0].schema, iter(batches))
        rows = sum(batch["count"][0].as_py() if is_raw else changes_in(batch) for batch in batches)
        return HeldFile(
            disposition.shard,
            seq,
            plan.number,
            self._part.ordinal,
            path,
            rows,
            written.bytes,
            disposition.structure,
            plan.safe or disposition.target in self._job.partial,
            is_raw,
            self._part.file.first_time if isinstance(self._part, HeldPart) else self._part.first_time,
        )


def held_folder(source: str) -> str:
    """Return the folder of the rows that shards of a source hold, relative to the storage."""
    return f"held/{quote(source, safe='')}"


def held_path(shard: Shard, seq: int, begun: BegunWindow, part: int) -> str:
    """Return the path of the rows that a part of a window holds after a DDL; two attempts never write the same file."""
    name = f"w{begun.plan.number}-e{begun.epoch}-{part}.parquet"
    return f"{held_folder(shard.source)}/{_folder_of(shard)}/{seq}/{name}"


def _folder_of(shard: Shard) -> str:
    """Return a valid file name: a character of three bytes is quoted as nine, and names have at most 255 bytes."""
    whole = quote(str(shard.table), safe="")
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return whole if len(whole) <= LONGEST_NAME else f"{whole[: LONGEST_NAME - len(digest) - 1]}-{digest}"


def held_window(path: str) -> int:
    """Return the number of the window that stored a file of held rows."""
    return int(path.rpartition("/")[2].partition("-")[0].removeprefix("w"))


def _span(disposition: Disposition, file: str) -> RowSpan:
    """Return the end positions of the transactions in this binlog file that a disposition is for."""
    after = -1 if disposition.start is None else _start(disposition, file)
    return RowSpan(after) if disposition.until is None else RowSpan(after, disposition.until.position)


def _starts(by_table: Mapping[TableId, Disposition], file: str) -> dict[TableId, int]:
    return {table: _start(d, file) for table, d in by_table.items() if d.start is not None}


def _start(disposition: Disposition, file: str) -> int:
    """Return the position in this binlog file up to which the dump has the rows."""
    start = disposition.start
    if start is None:
        return 0
    return start.position if start.file == file else BEYOND


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
