"""US-6011, US-6026: what the target says about a statement that writes."""

from dataclasses import dataclass

from unshard.errors.target import TargetError


@dataclass(eq=False)
class StatementWarned(TargetError):
    """The target carried a statement out with a warning that nothing explains."""

    target: str
    words: str

    code = "US-6011"
    template = "writing to target table {target} met an unexpected warning: {words}"
    hint = "check that the target's structure fits the shards'; if it does, report this"


@dataclass(eq=False)
class WriteRefused(TargetError):
    """The target refuses to read or write one of its tables."""

    target: str
    words: str

    code = "US-6026"
    template = "the target refuses a statement about table {target}: {words}"
    hint = "mend what the server says (a privilege, a trigger, the table itself), then run the task again"


@dataclass(eq=False)
class LoadRefused(TargetError):
    """Several chunks of a dump cannot be loaded; all others are loaded."""

    source: str
    targets: str
    chunks: int
    errors: str

    code = "US-6407"
    template = (
        "{chunks} chunks of source {source} cannot be loaded into {targets}, all others are loaded;"
        " first errors: {errors}"
    )
    hint = "mend what the first errors say, then run the task again: it loads the chunks that are left"
