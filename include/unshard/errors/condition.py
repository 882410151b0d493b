"""US-2205, US-2206, US-235x: the condition of a dump (`where`)."""

from dataclasses import dataclass

from unshard.errors.base import Scope
from unshard.errors.source import SourceError


@dataclass(eq=False)
class ConditionRefused(SourceError):
    """A shard cannot be read under the condition of the dump."""

    scope = Scope.CONFIG
    shard: str
    condition: str
    place: str
    words: str

    code = "US-2205"
    template = "shard {shard} cannot be read where `{condition}` ({place}): {words}"
    hint = (
        "if these words are about the condition, correct `where`: it is an expression of the source over columns that"
        " all of its shards have, named without their table"
    )


@dataclass(eq=False)
class ConditionChanged(SourceError):
    """Rows would be dumped by another condition than those that are dumped already."""

    scope = Scope.CONFIG
    source: str
    dumped: str
    given: str

    code = "US-2206"
    template = "rows of source {source} are dumped already by `where: {dumped}`, the task file says `{given}` now"
    hint = "put the former condition back; or begin anew: `unshard stop --remove-meta` and empty targets"


@dataclass(eq=False)
class KeylessUnderCondition(SourceError):
    """Changes of rows that the dump leaves out cannot be applied without a key."""

    scope = Scope.CONFIG
    tables: str
    condition: str

    code = "US-2351"
    template = (
        "{tables} have no usable key: an UPDATE or DELETE of a row that is left out where not `{condition}` could not"
        " be applied, because the target lacks that row"
    )
    hint = "give them a key, leave them to a task of their own without `where`, or dump them in task-mode full"


@dataclass(eq=False)
class ImageUnderCondition(SourceError):
    """Changes of rows that the dump leaves out cannot be applied without all of their columns."""

    scope = Scope.CONFIG
    source: str
    image: str
    condition: str

    code = "US-2352"
    template = (
        "source {source} has binlog_row_image = {image}: an UPDATE of a row that is left out where not `{condition}`"
        " could not be applied, because the target lacks what the binlog leaves out"
    )
    hint = "SET GLOBAL binlog_row_image = FULL, the same in the server's configuration, and reconnect every session"
