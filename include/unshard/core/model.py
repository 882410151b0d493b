"""The basic values of the domain: servers, tables, shards, locations and table structures.

All are frozen values that can be compared, hashed and sent between processes. A structure is identified by
its digest, so a window's plan, a held file and a queue entry refer to it with 32 characters.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Self

from unshard.core.sql.quoting import quoted_names


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table of one server."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def folded(self) -> "TableId":
        """The table with names that do not depend on upper and lower case, to compare it."""
        return TableId(self.schema.casefold(), self.name.casefold())


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """An upstream table that is merged into a target table."""

    source: str
    table: TableId

    def __str__(self) -> str:
        return f"{self.source} {self.table}"


def lowered(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of columns in lower case, to compare them."""
    return tuple(name.lower() for name in names)


TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb"})
"""The storage engines with transactions, in lower case."""
_ENGINE = re.compile(r"\n\) ENGINE=(\w+)")
_GENERATION = re.compile(r"@(\d+)(?=\.\d+$)")
_NUMBERS = re.compile(r"[a-z0-9_ ]+\((\d+)(?:,(\d+))?\)")


def lacks_transactions(create_sql: str) -> str:
    """Return the storage engine of a CREATE TABLE if it has no transactions; else an empty text."""
    engine = _ENGINE.search(create_sql)
    return "" if engine is None or has_transactions(engine[1]) else engine[1]


def has_transactions(engine: str) -> bool:
    """Whether a storage engine has transactions."""
    return engine.lower() in TRANSACTIONAL


@lru_cache(1 << 12)
def file_order(file: str) -> tuple[int, int]:
    """Return generation and number of a binlog file."""
    found = _GENERATION.search(file)
    return int(found[1]) if found else 0, int(file.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class Location:
    """A position in the binlog of one source; sorted by the number of the file, then by the byte.

    After a failover to another server with the same GTID history, the files have a new generation, which sorts after
    the previous one: `mysql-bin@1.000004` is the file `mysql-bin.000004` of the second server.
    """

    file: str
    position: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: `mysql-bin.1000000` comes after `mysql-bin.999999`."""
        return (*file_order(self.file), self.position)

    @property
    def generation(self) -> int:
        """The number of servers of the source that were followed before the server of this file."""
        return file_order(self.file)[0]

    @property
    def server_file(self) -> str:
        return _GENERATION.sub("", self.file)

    def in_generation(self, generation: int) -> Self:
        """Return the same location with the generation in the name of the file."""
        base, _, number = self.server_file.rpartition(".")
        return replace(self, file=f"{base}@{generation}.{number}" if generation else f"{base}.{number}")

    def __lt__(self, other: "Location") -> bool:
        return self.order < other.order

    def __le__(self, other: "Location") -> bool:
        return self.order <= other.order

    def __gt__(self, other: "Location") -> bool:
        return self.order > other.order

    def __ge__(self, other: "Location") -> bool:
        return self.order >= other.order

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


class Verify(StrEnum):
    """Which parts of a server's certificate are verified."""

    FULL = "full"
    """The signature and the host name."""
    CA = "ca"
    """The signature only."""
    NONE = "none"
    """Nothing: the connection is encrypted, but the server is not authenticated."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of a connection, with the certificates themselves, so that it can be sent to other machines."""

    verify: Verify
    ca: str = field(default="", repr=False)
    """PEM; empty: the authorities that the system trusts."""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    allowed: tuple[str, ...] = ()
    """The allowed common names of the server's certificate; empty: any."""


@dataclass(frozen=True, slots=True)
class Server:
    """The address and account of a MySQL-compatible server; `repr` does not show the password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    session: tuple[tuple[str, str], ...] = ()
    tls: Tls | None = None
    """None: TLS if the server offers it, without verification of its certificate."""

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ObjectAccess:
    """The account and address of an object store; the SDK takes empty values from its files or the machine profile."""

    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = ""
    """URL of a store other than Amazon's."""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column as information_schema.COLUMNS describes it."""

    name: str
    data_type: str
    """Lower case, without length: `int`, `varchar`, `enum`, …"""
    column_type: str
    """As the server prints it: `int(10) unsigned`, `enum('a','b')`."""
    nullable: bool
    charset: str | None
    collation: str | None
    default: str | None
    extra: str
    """Lower case: `auto_increment`, `stored generated`, `invisible`, …"""
    sent_as: str | None = field(default=None, compare=False)
    """The character set in which the target receives and returns the values, if it is not `charset`."""
    own_name: str | None = field(default=None, compare=False)
    """The name that the shard itself gives the column, if the target's is another one (core.ddl.columnnames)."""

    @property
    def encoding(self) -> str | None:
        """The character set of the column's canonical values, which are bytes."""
        return self.sent_as or self.charset

    @property
    def is_generated(self) -> bool:
        """Whether the server computes the value, so that no INSERT names the column."""
        return "generated" in self.extra

    @property
    def is_counted(self) -> bool:
        """Whether the column has AUTO_INCREMENT."""
        return "auto_increment" in self.extra

    @property
    def is_numbered(self) -> bool:
        """Whether the server numbers the rows if an INSERT does not name the column."""
        return self.is_counted or "auto_random" in self.extra

    @property
    def is_unsigned(self) -> bool:
        return "unsigned" in self.column_type

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in parentheses after the type's name: a length, or digits and scale."""
        found = _NUMBERS.match(self.column_type)
        return tuple(int(part) for part in found.groups() if part) if found else ()


@dataclass(frozen=True, slots=True)
class Index:
    """One index; `columns` in index order, `prefixed` if a part is not a whole column."""

    name: str
    columns: tuple[str, ...]
    """An expression is its text in SHOW CREATE TABLE, in parentheses."""
    unique: bool
    prefixed: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The columns that it depends on, in lower case, including those in expressions."""
        inside = (name for part in self.columns if part.startswith("(") for name in quoted_names(part))
        return frozenset(name.lower() for name in (*self.columns, *inside))


@dataclass(frozen=True)
class TableSchema:
    """The structure of a table: its columns, indexes and default collation."""

    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    create_sql: str
    """SHOW CREATE TABLE of a table named `t`, without foreign keys and AUTO_INCREMENT (core.structures.createtext)."""
    collation: str = ""
    """The table's default, which columns get that a later DDL adds without a charset."""
    own: tuple[str, ...] = field(default=(), compare=False)
    """Columns of a target table that no shard fills, in lower case (core/structures/tablekeys.py)."""

    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Clauses about storage that `create_sql` does not have, of a table that has just been read."""

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that identify this structure, independent of the table's name: shape, then a text hash.

        The text has the parts that the shape lacks: comments, CHECKs, partitions, names of constraints, and the shard's
        own names of columns.
        """
        own = "".join(f"\n{c.own_name} is {c.name}" for c in self.columns if c.own_name)
        text = (self.create_sql + own).encode("utf-8", "surrogateescape")
        return self.shape + hashlib.sha256(text).hexdigest()[:16]

    @cached_property
    def shape(self) -> str:
        """16 hexadecimal digits, equal for tables with equal columns, indexes and default collation."""
        left_out = ("sent_as", "own_name")
        columns = [{name: value for name, value in asdict(c).items() if name not in left_out} for c in self.columns]
        body = {"columns": columns, "indexes": [asdict(i) for i in self.indexes], "collation": self.collation}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by their names in lower case, because names ignore case."""
        return {column.name.lower(): column for column in self.columns}

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that an INSERT names: all but generated ones."""
        return tuple(column for column in self.columns if not column.is_generated)

    def column(self, name: str) -> Column:
        """Return the column of this name (MySQL's column names ignore case); raises KeyError."""
        return self.by_name[name.lower()]

    @property
    def lacks_transactions(self) -> str:
        """The storage engine if it has no transactions; else empty."""
        return lacks_transactions(self.create_sql)

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row: the primary key, else the first unique key without NULLs.

        A key with a prefix, a float or a generated column is not used. Empty if there is no usable key: the
        table is then treated as a multiset of rows.
        """
        for index in sorted(self.unique_indexes, key=lambda i: (i.name != "PRIMARY", i.name)):
            if not index.prefixed and all(_identifies(self.column(name)) for name in index.columns):
                return index.columns
        return ()

    @property
    def unique_indexes(self) -> tuple[Index, ...]:
        """The unique indexes whose columns the shards fill: no row can be found by another one."""
        indexes = (index for index in self.indexes if index.unique)
        return tuple(index for index in indexes if not self.own or not index.names & {*self.own})

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("own", "left_out")}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        return cls(
            tuple(Column(**c) for c in body["columns"]),
            tuple(Index(i["name"], tuple(i["columns"]), i["unique"], i["prefixed"]) for i in body["indexes"]),
            body["create_sql"],
            body.get("collation", ""),
        )


def shape_of(digest: str) -> str:
    """Return the shape of the structure with this digest."""
    return digest[:16]


def text_of(digest: str) -> str:
    """Return the part of a digest that identifies the text of the structure."""
    return digest[16:]


def _identifies(column: Column) -> bool:
    return not (column.nullable or column.is_generated or column.data_type in ("float", "double"))
