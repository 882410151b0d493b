"""The base of all coded errors, and one base class for each thousand of codes.

An error is a class with a code, typed fields and texts; everything else derives from that:

* The fields are the constructor's arguments. The class is made a dataclass, so mypy checks the arguments, and the
  error pickles across Spark and Airflow processes. Its first instance makes it: a process that made all of them when
  it imports this package would need 0.1 s for that.
* `template` is the message and `hint` the next step; both are filled in with the fields.

docs/errors.md, written by hand, has the cause, the consequence and the remedy of each code.
"""

from dataclasses import Field, dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Self, dataclass_transform

_MADE: set[type] = set()
"""Errors that are dataclasses already."""


class Scope(StrEnum):
    """Where the cause of an error lies."""

    CONFIG = "config"
    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    INTERNAL = "internal"


@dataclass_transform(eq_default=False)
class UnshardError(Exception):
    """Base class of all errors that unshard raises on purpose.

    `code` never changes its meaning. `transient` means that the same call may succeed later.
    """

    code: ClassVar[str] = "US-0000"
    scope: ClassVar[Scope] = Scope.INTERNAL
    transient: ClassVar[bool] = False
    template: ClassVar[str] = "internal error"
    hint: ClassVar[str] = ""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, code: str = "", scope: Scope | None = None, transient: bool | None = None) -> None:
        """Set the values of the header; a subclass inherits what its header does not state."""
        super().__init_subclass__()
        if code:
            cls.code = code
        if scope is not None:
            cls.scope = scope
        if transient is not None:
            cls.transient = transient

    def __new__(cls, *args: Any, **_: Any) -> Self:
        cls.make()
        return super().__new__(cls, *args)

    @classmethod
    def make(cls) -> None:
        """Make the class and its bases dataclasses, if they are not yet; dataclasses.fields needs that.

        Two threads may do this for a class at once: each makes the same of it.
        """
        if cls in _MADE:
            return
        for each in reversed(cls.__mro__):
            if issubclass(each, UnshardError) and each not in _MADE:
                dataclass(eq=False)(each)
                _MADE.add(each)

    def __post_init__(self) -> None:
        # Positional arguments make the error picklable across Spark and Airflow processes.
        super().__init__(*(getattr(self, field.name) for field in fields(self)))

    @property
    def message(self) -> str:
        """The sentence without code and hint."""
        return self.template.format_map(vars(self))

    @property
    def next_step(self) -> str:
        """The hint, filled in; empty for an error without one."""
        return self.hint.format_map(vars(self))

    def __str__(self) -> str:
        hint = f" ({self.next_step})" if self.hint else ""
        return f"[{self.code}] {self.message}{hint}"


class ConfigError(UnshardError, scope=Scope.CONFIG):
    """US-1xxx: the task file, a source file or the command line is not valid."""


class ServerError(UnshardError):
    """US-20xx: a source or the target cannot be reached or rejects a statement."""

    where: str
    """Role of the server in the task: `source s1`, `target`."""
    server: str
    """user@host:port."""
    server_message: str


class SourceError(UnshardError, scope=Scope.UPSTREAM):
    """US-2xxx: a source refuses or lacks something that the task needs."""


class PlaceError(ConfigError):
    """The same, about a key of a file."""

    place: str
    """File, line and path of the key."""


class RelayError(UnshardError, scope=Scope.UPSTREAM):
    """US-3xxx: the binlog cannot be pulled or decoded any further."""


class DdlError(UnshardError, scope=Scope.UPSTREAM):
    """US-4xxx: a DDL cannot be classified, tried or executed."""


class ShardDdlError(UnshardError, scope=Scope.UPSTREAM):
    """US-5xxx: the shards of a target disagree, or an operator's command cannot be carried out."""


class TargetError(UnshardError, scope=Scope.DOWNSTREAM):
    """US-6xxx: the target refuses rows, or its rows are not those that it should have."""


class MetaError(UnshardError, scope=Scope.DOWNSTREAM):
    """US-7xxx: a problem of the meta tables, the storage, Spark or the state of the task."""


class SourceRelayError(RelayError):
    """US-3xxx about the binlog of one source."""

    source: str


class SourceMetaError(MetaError):
    """US-7xxx about one source."""

    source: str


class TargetDdlError(ShardDdlError):
    """US-5xxx about one target table."""

    target: str


class OneTargetError(TargetError):
    """US-6xxx about one target table."""

    target: str


class ShardRowsError(TargetError):
    """US-6xxx about the rows of one shard."""

    shard: str
