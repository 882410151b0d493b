"""Compaction: reduces many changes of one key to two bits and the last row.

A key of one shard either exists or does not, and every change switches between the two states: INSERT and AFTER add the
row, DELETE and BEFORE remove it. So a run of changes is described by its ends: `existed` before the first change and
`exists` after the last one. Adjacent runs can be combined in any grouping, on any executor.

    existed  exists | outside safe mode                          | in safe mode
    no       no     | nothing                                    | delete: the dump may contain the row
    no       yes    | insert, which must be new                  | replace
    yes      no     | delete                                     | delete
    yes      yes    | replace; with several unique keys: delete, | replace
                    | then insert, which must be new             |

All deletes of a target are executed before all writes. So keys that are equal only in the target (`a` and `A`) and
unique values that move between rows cause no conflict. Tables without a key are multisets: a run is the sum of its
additions and removals per row.

Tables that foreign keys connect are written without compaction, in the order of the binlog: the source has satisfied
its foreign keys after each of its statements, so the same order satisfies them in the target. Compaction would lose
a parent that is deleted and inserted again, a key that changes (ON UPDATE), and the moment at which a child leaves its
parent.

| rows in the order of the binlog              | step                                                   |
|----------------------------------------------|--------------------------------------------------------|
| INSERTs of one table                         | one INSERT of several rows                             |
| DELETEs of one table                         | one DELETE of several keys                             |
| DELETEs of a table that references itself    | one DELETE each: a parent may come before its child   |
| both images of an UPDATE                     | one UPDATE                                             |
| one image of an UPDATE, the other was left   | an INSERT or a DELETE                                  |
| out by a filter                              |                                                        |
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Op(IntEnum):
    """The kind of a row image in the binlog: the values of the `_op` column of a batch."""

    INSERT = 0
    DELETE = 1
    BEFORE = 2
    AFTER = 3

    @property
    def adds(self) -> bool:
        """Whether the row exists after this change."""
        return self in (Op.INSERT, Op.AFTER)


class Collisions(StrEnum):
    """The policy for a new row whose key another shard owns; from the strictest to the most tolerant."""

    ERROR = "error"
    REPLACE = "replace"
    IGNORE = "ignore"


class Write(IntEnum):
    """The way to write the last row of a run."""

    NOTHING = 0
    PLAIN = 1
    """The key must be new."""
    REPLACE = 2


@dataclass(frozen=True, slots=True)
class Action:
    """The operations of a run on the target."""

    delete: bool
    write: Write


def action(existed: bool, exists: bool, safe: bool, several_keys: bool) -> Action:
    """Return the operations of a run on the target, by the table above."""
    match existed, exists:
        case (False, False):
            return Action(safe, Write.NOTHING)
        case (True, False):
            return Action(True, Write.NOTHING)
        case _ if safe:
            return Action(False, Write.REPLACE)
        case (False, True):
            return Action(False, Write.PLAIN)
        case _:
            return Action(True, Write.PLAIN) if several_keys else Action(False, Write.REPLACE)


def actions(several_keys: bool) -> Mapping[int, Action]:
    """Return all actions, by 4 x safe + 2 x existed + exists; `several_keys`: the target has several unique keys."""
    bits = (False, True)
    return {4 * s + 2 * b + a: action(b, a, s, several_keys) for s in bits for b in bits for a in bits}


# --- changes of rows that are written one after the other


ROWS_AT_ONCE = 200


class RowStepKind(StrEnum):
    """The statement of a step."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StepImages:
    """The images of one step, by their numbers: all rows of an INSERT or DELETE, or BEFORE and AFTER of one UPDATE."""

    kind: RowStepKind
    rows: tuple[int, ...]


def steps_of(
    ops: Sequence[int], names: Sequence[Hashable], alone: Sequence[bool], most: int = ROWS_AT_ONCE
) -> Iterator[StepImages]:
    """Yield the steps of images in the order of the binlog.

    Images with different names are not in one step: the name contains the table and whatever else one statement shares.
    DELETEs of rows marked by `alone` are steps of their own.
    """
    row = 0
    while row < len(ops):
        if is_update(ops, names, row):
            yield StepImages(RowStepKind.UPDATE, (row, row + 1))
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
        yield StepImages(RowStepKind.INSERT if adds else RowStepKind.DELETE, tuple(range(row, end)))
        row = end


def is_update(ops: Sequence[int], names: Sequence[Hashable], row: int) -> bool:
    """Whether an image and the next one are both images of one UPDATE."""
    following = row + 1
    if following == len(ops) or ops[row] != Op.BEFORE or ops[following] != Op.AFTER:
        return False
    return names[row] == names[following]
