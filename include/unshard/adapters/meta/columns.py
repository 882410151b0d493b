"""Kinds of columns of the meta tables."""

from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Column, String, TypeDecorator
from sqlalchemy.dialects.mysql import DATETIME, LONGTEXT, TINYINT
from sqlalchemy.engine import Dialect

from unshard.core.ddl.queue import OperatorDecision


class Moment(TypeDecorator[datetime]):
    """DATETIME(6) in UTC, read as an aware datetime."""

    impl = DATETIME(fsp=6)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


Columns = tuple[Column[Any], ...]


def of_kind(name: str, comment: str | None = None, *, kind: Any, null: bool = False) -> Column[Any]:
    """Define a column of any type."""
    return Column(name, kind, nullable=null, comment=comment)


word = partial(of_kind, kind=String(16))
"""Defines a word of at most 16 characters, such as a state."""
digest = partial(of_kind, kind=String(32))
"""Defines a hash."""
long = partial(of_kind, kind=LONGTEXT())
"""Defines a text of any length; JSON is stored so."""
big = partial(of_kind, kind=BigInteger)
"""Defines a number."""
flag = partial(of_kind, kind=TINYINT())
"""Defines a column that is 0 or 1."""
moment = partial(of_kind, kind=Moment)
"""Defines a time."""


def key(name: str, comment: str | None = None, size: int = 64) -> Column[Any]:
    """Define a text column of the primary key."""
    return Column(name, String(size), primary_key=True, comment=comment)


def number(name: str, comment: str | None = None) -> Column[Any]:
    """Define a number of the primary key."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False, comment=comment)


def auto_id(comment: str) -> Column[Any]:
    """Define a number that the server assigns, part of the primary key."""
    return Column("id", BigInteger, primary_key=True, autoincrement=True, comment=comment)


def text(name: str, comment: str | None = None, *, size: int = 64, null: bool = False) -> Column[Any]:
    """Define a short text."""
    return of_kind(name, comment, kind=String(size), null=null)


def state(name: str, values: type[StrEnum], *, null: bool = False) -> Column[Any]:
    """Define a column that holds a value of an enumeration."""
    return word(name, ", ".join(each.value or "empty" for each in values), null=null)


def shard_key() -> Columns:
    """Define the columns of the primary key that name a shard."""
    return key("source"), key("shard_schema"), key("shard_table", size=128)


def shard() -> Columns:
    """Define the columns that name a shard."""
    return text("source"), text("shard_schema"), text("shard_table", size=128)


def target_key() -> Columns:
    """Define the columns of the primary key that name a target table."""
    return key("target_schema"), key("target_table")


def target() -> Columns:
    """Define the columns that name a target table."""
    return text("target_schema"), text("target_table")


def location(prefix: str = "", comment: str | None = None, *, null: bool = False) -> Columns:
    """Define the columns of a binlog location."""
    return text(f"{prefix}file", comment, size=255, null=null), big(f"{prefix}position", null=null)


def decision() -> Columns:
    """Define the columns of an operator's decision about a DDL."""
    replacement = "JSON: the statements that run instead of the DDL, or empty"
    return state("decision", OperatorDecision), long("replacement", replacement)
