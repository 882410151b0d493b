"""What is left of many changes of one key: two bits and the last row.

A key of one shard either exists or does not, and every change turns one into the other: INSERT and AFTER
add the row, DELETE and BEFORE take it away. So a run of changes is known by its ends, `existed` before the
first one and `exists` after the last; runs combine by their ends, in any grouping, on any executor.

    existed  exists | outside safe mode                          | in safe mode
    no       no     | nothing                                    | delete: the dump may have seen the row
    no       yes    | insert, which must be new                  | replace
    yes      no     | delete                                     | delete
    yes      yes    | replace; with several unique keys: delete, | replace
                    | then insert, which must be new             |

All deletes of a target come before all writes, so that keys which are equal only for the target (`a` and
`A`) and unique values that move between rows do no harm. Tables without a key are multisets: a run is
the sum of its additions and removals per row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Op(IntEnum):
    """What a row image of the binlog means, as the `_op` column of a batch says it."""

    INSERT = 0
    DELETE = 1
    BEFORE = 2
    AFTER = 3

    @property
    def adds(self) -> bool:
        """Whether the row exists after this change."""
        return self in (Op.INSERT, Op.AFTER)


class Collisions(StrEnum):
    """What happens to a new row whose key another shard owns; from the strictest to the most tolerant."""

    ERROR = "error"
    REPLACE = "replace"
    IGNORE = "ignore"


class Write(IntEnum):
    """How the last row of a run is written."""

    NOTHING = 0
    PLAIN = 1
    """The key must be new."""
    REPLACE = 2


@dataclass(frozen=True, slots=True)
class Action:
    """What a run asks of the target."""

    delete: bool
    write: Write


def action(existed: bool, exists: bool, safe: bool, several_keys: bool) -> Action:
    """Decide what a run asks of the target, by the table above."""
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
    """Return all decisions, by 4 x safe + 2 x existed + exists; `several_keys`: the target has more than one."""
    bits = (False, True)
    return {4 * s + 2 * b + a: action(b, a, s, several_keys) for s in bits for b in bits for a in bits}
