"""Which row of the target each row of a window was before the window, so that it keeps the values of own columns.

Runs in executors. Own columns are columns that only the target has (core/structures/tablekeys.py). Their values belong
to a row for as long as it exists: an UPDATE keeps them, also if it changes the key; a row that is deleted and inserted
again is a new row. So the runs of such targets have a column more, `base`: the name that the row had before the run,
null if the row is new. The name is the encoded key, or the whole line in a table without a key.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.core.rows.compaction import Op

PREFIX = 4
LONGEST = (1 << 31) - 1
NOTHING = pa.scalar(b"", pa.binary())
NONE = pa.scalar(None, pa.binary())


def bases_of(ops: np.ndarray, names: pa.Array) -> pa.Array:
    """Return the name of each row before its change; null for rows that are no AFTER image."""
    before = pa.concat_arrays([pa.nulls(1, pa.binary()), names.slice(0, max(0, len(names) - 1))])
    return pc.if_else(pa.array(ops == Op.AFTER), before.slice(0, len(names)), NONE)


def in_shard(shards: np.ndarray, names: pa.Array) -> pa.Array:
    """Return the names preceded by the number of their shard; nulls stay."""
    ends = np.arange(0, PREFIX * (len(shards) + 1), PREFIX, dtype=np.int32)
    numbers = np.ascontiguousarray(shards, dtype=np.int32)
    prefixes = pa.Array.from_buffers(pa.binary(), len(shards), [None, pa.py_buffer(ends), pa.py_buffer(numbers)])
    return pc.binary_join_element_wise(prefixes, names, NOTHING)


def without_shard(names: pa.Array) -> pa.Array:
    """Return the names without the number of their shard; nulls stay."""
    return pc.binary_slice(names, PREFIX, LONGEST)  # without an end it fails for nulls


def origins(names: pa.Array, bases: pa.Array, moments: np.ndarray, wanted: pa.Array) -> pa.Array:
    """Return the name that each wanted row had before all changes; null for new rows.

    The other arguments describe the changes after which a row exists. Changes of one moment see the state before all of
    them.
    """
    new = names.filter(pc.is_null(bases))
    found = pc.if_else(pc.is_in(wanted, new), NONE, wanted) if len(new) else wanted
    moved = pc.fill_null(pc.not_equal(names, bases), False)
    if not pc.any(moved).as_py():
        return found
    involved = pc.unique(pa.concat_arrays([names.filter(moved), bases.filter(moved)]))
    state = _followed(names, bases, moments, _marked(pc.is_in(names, involved)))
    followed = [state.get(name, kept) for name, kept in zip(_list(wanted), _list(found), strict=True)]
    return pa.array(followed, pa.binary())


def _followed(names: pa.Array, bases: pa.Array, moments: np.ndarray, rows: np.ndarray) -> dict[bytes, bytes | None]:
    """Follow the rows through their changes; return the first name of each one by its last name."""
    state: dict[bytes, bytes | None] = {}
    pending: dict[bytes, bytes | None] = {}
    moment = None
    for row in rows[np.argsort(moments[rows], kind="stable")].tolist():
        if moments[row] != moment:
            state |= pending
            pending, moment = {}, moments[row]
        base = bases[row].as_py()
        pending[names[row].as_py()] = None if base is None else state.get(base, base)
    return state | pending


def _marked(marks: pa.Array) -> np.ndarray:
    rows: np.ndarray = np.flatnonzero(marks.to_numpy(zero_copy_only=False))
    return rows


def _list(values: pa.Array) -> list[bytes]:
    found: list[bytes] = values.to_pylist()
    return found


@dataclass(slots=True)
class NetLines:
    """The effect of changes of a table without a key; rows are given by their numbers."""

    removed: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    """Lines of rows that no longer exist, and how many."""
    new: list[int] = field(default_factory=list)
    changed: list[tuple[bytes, int]] = field(default_factory=list)
    """The line before, and the row."""


def net_lines(
    shards: Sequence[int], lines: Sequence[bytes], bases: Sequence[bytes | None], gone: Sequence[int]
) -> NetLines:
    """Return the effect of changes in order: an UPDATE has a base, `gone` is 1 for a DELETE and 0 for an INSERT."""
    found, present = NetLines(), defaultdict[tuple[int, bytes], list[tuple[int, bytes | None]]](list)
    for row, (shard, line, base) in enumerate(zip(shards, lines, bases, strict=True)):
        if base is None and not gone[row]:
            present[shard, line].append((row, None))
            continue
        before = line if base is None else base
        known = present[shard, before]
        origin = known.pop()[1] if known else before
        if base is not None:
            present[shard, line].append((row, origin))
        elif origin is not None:
            found.removed[origin] += 1
    for (_, line), rows in present.items():
        found.new += [row for row, origin in rows if origin is None]
        found.changed += [(origin, row) for row, origin in rows if origin is not None and origin != line]
    return found
