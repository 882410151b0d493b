"""US-6803, US-6804, US-6810: comparing the target with its shards."""

from unshard.errors.base import TargetError


class PacketTooSmall(TargetError, code="US-6803"):
    """The server's `max_allowed_packet` is too small to compare rows.

    The text of a row could become NULL during the comparison, which would hide a difference.

    Consequence: Nothing is compared.
    """

    server: str
    value: int
    wanted: int
    template = "{server} has max_allowed_packet = {value}, comparing needs {wanted} at least"
    hint = "SET GLOBAL max_allowed_packet to 16777216 (16 MiB) and try again"


class NothingToValidate(TargetError, code="US-6804"):
    """There is no target table to compare: no shard was found, or `--table` names no target of this task.

    Consequence: Nothing is compared.
    """

    tables: str
    template = "no target table to validate{tables}"
    hint = "check the task's routes, and the names given with --table"


class NothingInCommon(TargetError, code="US-6810"):
    """The target table and its shards have no column in common that can be compared.

    Consequence: `unshard validate` has no verdict about this table. It compares all others.
    """

    target: str
    reasons: str
    template = "target table {target} has no column in common with its shards that can be compared: {reasons}"
    hint = "check that the routes send the right shards to this table, and compare SHOW CREATE TABLE on both"
