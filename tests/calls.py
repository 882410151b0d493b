"""Counts how often one action reads the state of all shards, and how often it simulates the ways out of a conflict."""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

from unshard.core.ddl import waysout

Counts = tuple[int, int]
"""The readings of the scene (units.ddl.scene), and the simulations (core.ddl.waysout)."""


def counted(action: Callable[[], object]) -> Counts:
    """Return the counts of an action that works in this thread."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and (code.co_name == "read_scene" or code is waysout.ways_out.__code__):
            found[code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return found["read_scene"], found["ways_out"]
