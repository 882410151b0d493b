"""Cut a stream of binlog events many at a time, to the same segments, byte for byte, as the cutter.

Only the most common events are processed together: whole transactions of rows, and the rows inside a large transaction.
The cutter processes everything else one event at a time, and reports errors.
"""

from collections.abc import Iterator

import numpy as np

from unshard.binlog.cutter import RANGE_BYTES, Cutter, Draft, Sink
from unshard.binlog.events import HEADER, read_frame, read_query
from unshard.binlog.gtids import read_gtid
from unshard.binlog.runs import Numbers, Run, Stretch, inspect
from unshard.binlog.tablemap import table_of
from unshard.binlog.transactions import QueryKind, classify
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import Segment
from unshard.errors.relay import DamagedEvent

FEW = 8
"""For fewer events, processing them together is not faster."""
REMEMBERED = 1024
VARYING = 8
"""Bytes at the beginning of a QUERY body that differ each time: thread and seconds."""


class RunCutter(Cutter):
    """Reads runs of events in order."""

    def __init__(
        self, source: str, location: Location, sink: Sink, segment_bytes: int, before: Segment | None = None
    ) -> None:
        super().__init__(source, location, sink, segment_bytes, before)
        self._controls: dict[bytes, QueryKind | None] = {}
        """Kinds of QUERY events, by the constant part of their bodies; servers send the same few again and again."""
        self._names: dict[bytes, TableId | None] = {}
        """Tables by the bodies of their maps."""

    def read(self, run: Run, stop: Location) -> Iterator[int]:
        """Process the events of a run up to the first border at or after `stop`; yield the bytes of each step."""
        seen = inspect(run, self._control) if len(run) > FEW else None
        number = 0
        while number < len(run) and self.location < stop:
            began = number
            is_regular = self._position >= self.location.position and not self._fragments.is_pending
            if seen and self.format and is_regular:
                number = self._take_stretch(Stretch(seen, number, seen.plain_until(number)), stop)
            if number == began:
                self.feed(run.event(number))
                number += 1
            yield int(run.offsets[number] - run.offsets[began])

    def _take_stretch(self, stretch: Stretch, stop: Location) -> int:
        """Process as much of a stretch as possible, and return the number of the next event."""
        number = stretch.begin
        if stretch.end - number < FEW:
            return number
        stretch.check(self._position, self._tail)
        stretch.match(self._tables, self._name, self._tail)
        stretch.end_before_cut(self._ends.is_open)
        self._tables.update(stretch.maps)
        while number < stretch.end and self.location < stop:
            began = number
            if self._open:
                number = self._take_rows(stretch, number)
            elif not self._held_back:
                number = self._take_transactions(stretch, number, stop)
            if number == began:
                self.feed(stretch.run.event(number))
                number += 1
        return number

    def _take_rows(self, stretch: Stretch, begin: int) -> int:
        """Process the events inside a transaction that has rows."""
        end = stretch.rows_until(begin)
        if end > begin:
            self._append(stretch, begin, end)
        return end

    def _take_transactions(self, stretch: Stretch, begin: int, stop: Location) -> int:
        """Process whole transactions, up to the border where a range or a segment ends or `stop` is reached."""
        ends = stretch.transactions(begin) + 1
        if not len(ends):
            return begin
        lengths = stretch.run.offsets[ends] - stretch.run.offsets[begin]
        end = self._remember_all(stretch, begin, ends[: int(np.searchsorted(lengths, self._room(stop))) + 1])
        if end > begin:
            self._append(stretch, begin, end)
            self._end_group()
        return end

    def _room(self, stop: Location) -> int:
        """Return how many bytes may follow before something must be done at a border."""
        draft = self._draft
        held = draft.offset if draft else len(self._prefix)
        range_end = (draft.range_start if draft else held) + RANGE_BYTES
        room = min(self.segment_bytes, range_end) - held
        return min(room, stop.position - self._position) if stop.file == self.location.file else room

    def _append(self, stretch: Stretch, begin: int, end: int) -> Draft:
        data = stretch.data(begin, end)
        draft = self._draft or self._start()
        self.sink.write(data)
        draft.add(len(data), *stretch.times(begin, end))
        draft.group.update(dict(stretch.counts(begin, end)))
        self._position += len(data)
        self._ends.is_open = stretch.is_open_before(end)
        return draft

    def _remember_all(self, stretch: Stretch, begin: int, ends: Numbers) -> int:
        """Add transactions to the history; return the end of the last one that could be added."""
        numbers = stretch.gtids(begin, int(ends[-1]))
        last = stretch.last_of_domains(numbers)
        if last is not None:
            for gtid in last:
                self.history.add(gtid)
            return int(ends[-1])
        for number in numbers.tolist():
            event = stretch.run.event(number)
            try:
                self.history.add(read_gtid(event[HEADER : len(event) - self._tail], read_frame(event), "").text)
            except (DamagedEvent, ValueError):
                before = ends[ends <= number]
                return int(before[-1]) if len(before) else begin
        return int(ends[-1])

    def _control(self, event: bytes) -> QueryKind | None:
        """Return the kind of a QUERY event, None if it cannot be read."""
        body = event[HEADER : len(event) - self._tail]
        key = body[VARYING:]
        if key not in self._controls:
            if len(self._controls) >= REMEMBERED:
                self._controls.clear()
            try:
                self._controls[key] = classify(read_query(body, read_frame(event), "").text)[0]
            except DamagedEvent:
                self._controls[key] = None
        return self._controls[key]

    def _name(self, body: bytes) -> TableId | None:
        """Return the table of a map's body, None if it cannot be read."""
        if body not in self._names:
            if len(self._names) >= REMEMBERED:
                self._names.clear()
            try:
                self._names[body] = table_of(body, "")
            except DamagedEvent:
                self._names[body] = None
        return self._names[body]
