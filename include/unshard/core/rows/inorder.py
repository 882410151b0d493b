"""The steps in which changes of rows are written one after the other, in the order of the binlog.

Tables that foreign keys connect are written this way: the source has satisfied its foreign keys after each of its
statements, so the same order satisfies them in the target. Compaction would lose what foreign keys depend on: a parent
that is deleted and inserted again, a key that changes (ON UPDATE), and the moment at which a child leaves its parent.

| rows in the order of the binlog              | step                                                   |
|----------------------------------------------|--------------------------------------------------------|
| INSERTs of one table                         | one INSERT of several rows                             |
| DELETEs of one table                         | one DELETE of several keys                             |
| DELETEs of a table that references itself    | one DELETE each: a parent may come before its child   |
| both images of an UPDATE                     | one UPDATE                                             |
| one image of an UPDATE, the other was left   | an INSERT or a DELETE                                  |
| out by a filter                              |                                                        |
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.rows.compaction import Op

ROWS_AT_ONCE = 200


class RowStepKind(StrEnum):
    """The statement of a step."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class RowImages:
    """The images of one step, by their numbers: all rows of an INSERT or DELETE, or BEFORE and AFTER of one UPDATE."""

    kind: RowStepKind
    rows: tuple[int, ...]


def steps_of(
    ops: Sequence[int], names: Sequence[Hashable], alone: Sequence[bool], most: int = ROWS_AT_ONCE
) -> Iterator[RowImages]:
    """Yield the steps of images in the order of the binlog.

    Images with different names are not in one step: the name contains the table and whatever else one statement shares.
    DELETEs of rows marked by `alone` are steps of their own.
    """
    row = 0
    while row < len(ops):
        if is_update(ops, names, row):
            yield RowImages(RowStepKind.UPDATE, (row, row + 1))
            row += 2
            continue
        adds = Op(ops[row]).adds
        end = row + 1
        while (
            end < len(ops)
            and end - row < most
            and names[end] == names[row]
            and Op(ops[end]).adds is adds
            and (adds or not alone[end])
            and not is_update(ops, names, end)
        ):
            end += 1
        yield RowImages(RowStepKind.INSERT if adds else RowStepKind.DELETE, tuple(range(row, end)))
        row = end


def is_update(ops: Sequence[int], names: Sequence[Hashable], row: int) -> bool:
    """Whether an image and the next one are both images of one UPDATE."""
    following = row + 1
    if following == len(ops) or ops[row] != Op.BEFORE or ops[following] != Op.AFTER:
        return False
    return names[row] == names[following]
