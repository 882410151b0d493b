"""Cuts windows small; every Python process of a Spark server with this folder on its path runs it first.

UNSHARD_KILLS_CUT selects slices of one part each, or steps of a few rows. For each window, a line `source window epoch
number what` is written per slice or step. The end of an attempt in slices is also written: an attempt without that line
has died with its process.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unshard.adapters.target import Committed, Fence, Slice, Slices, Writer, apply_slices, fencesteps
from unshard.units.window import tasks as windowslices

LOG = Path(os.environ["UNSHARD_KILLS_LOG"])
BOUNDS = fencesteps.Bounds(rows=40, bytes=1 << 20, appliers=1)


def line(fence: Fence, number: int, what: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{fence.source} {fence.window} {fence.epoch} {number} {what}\n")


def into_slices() -> None:
    def observed(writer: Writer, fences: Sequence[Fence], slices: Slices) -> Iterator[Committed]:
        made, reached = [0] * len(fences), 0

        def counted(is_waiting: Callable[[], bool]) -> Iterator[Slice]:
            for each in slices(is_waiting):
                made[each.section] += 1
                line(fences[each.section], made[each.section], "made")
                yield each

        try:
            for each in apply_slices(writer, fences, counted):
                for number in range(reached, each.sections):
                    line(fences[number], made[number], "applied")
                reached = each.sections
                yield each
        finally:
            if reached < len(fences):
                line(fences[reached], made[reached], "left")

    windowslices.PIECE_BYTES = windowslices.SLICE_BYTES = 1
    windowslices.apply_slices = observed


def into_steps() -> None:
    mark = fencesteps.mark

    def observed(connection: Any, fence: Fence, step: fencesteps.FenceStep) -> bool:
        line(fence, step.number, "step")
        return mark(connection, fence, step)

    fencesteps.INNODB = fencesteps.STATEMENTS = BOUNDS
    fencesteps.mark = observed


{"slices": into_slices, "steps": into_steps}[os.environ["UNSHARD_KILLS_CUT"]]()
