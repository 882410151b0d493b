"""The connection to the meta schema: transactions, coded errors, migrations.

A window is a few short transactions, so connections stay open between them. A forked process (Airflow) does not use the
connections of its parent. The isolation level is READ COMMITTED; rows that must not change are locked explicitly. Each
statement is a round trip to a server that may be far away:

| use              | round trips                                                     |
|------------------|-----------------------------------------------------------------|
| the database     | one for each SELECT: the session is in autocommit mode          |
| `single`         | one, for a statement that may run twice                         |
| `transaction`    | BEGIN, the statements, COMMIT                                   |
| `snapshot`       | SET TRANSACTION, START TRANSACTION, the SELECTs, COMMIT         |

COMMIT and ROLLBACK are sent only if the server's last answer said that a transaction is open, because SQLAlchemy
requests one of them after every use.

A connection may be lost while it is in the pool: the server was restarted or has closed it. It is not tested before it
is used: its first statement detects the loss and runs again on a new session. That is safe, because this statement
begins a transaction or only reads, and no statement of a transaction comes before it.

Numbered steps (`Migration`) bring a meta schema to this version. Step 1 creates the tables as `tables` defines them:
the schema is not released yet, so it has no older form. After the first release a step is never changed; a later step
alters its tables. DDL has no transaction. Each statement can be repeated after a crash (IF NOT EXISTS), and the number
of a step is written last.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pymysql
from pymysql.connections import Connection as DriverConnection
from pymysql.constants import CLIENT, SERVER_STATUS
from sqlalchemy import (
    Column,
    Connection,
    Dialect,
    Engine,
    NullPool,
    Pool,
    QueuePool,
    Table,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects.mysql import dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn
from sqlalchemy.util import LRUCache

from unshard.adapters import mysql
from unshard.adapters.meta import tables
from unshard.adapters.meta.gateway import AnyRow, TaskReader, TaskWriter, Values
from unshard.core.model import Server
from unshard.core.sql.quoting import identifier
from unshard.errors import UnshardError
from unshard.errors.meta import MetaMissing, MetaTooNew, MetaTooOld, MigrationBusy

DIALECT = dialect()
OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; `number` counts from 1 without a gap."""

    number: int
    description: str
    written: Callable[[], tuple[str, ...]]

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements, written only for a schema that lacks the step: that takes 20 ms."""
        return self.written()


def create_table(table: Table) -> str:
    """Return CREATE TABLE IF NOT EXISTS with all indexes, for MariaDB, MySQL and TiDB."""
    comment = str(table.comment).replace("'", "''")
    parts = ", ".join(_parts(table))
    return f"CREATE TABLE IF NOT EXISTS {identifier(table.name)} ({parts}) {OPTIONS} COMMENT='{comment}'"


def _parts(table: Table) -> Iterator[str]:
    # SQLAlchemy would create the indexes by separate statements, which MySQL cannot repeat.
    yield from (str(CreateColumn(column).compile(dialect=DIALECT)) for column in table.columns)
    yield f"PRIMARY KEY ({_names(table.primary_key.columns)})"
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        yield f"{'UNIQUE ' if index.unique else ''}KEY {identifier(str(index.name))} ({_names(index.columns)})"


def _names(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(identifier(column.name) for column in columns)


MIGRATIONS = (Migration(1, "first tables", lambda: tuple(map(create_table, tables.metadata.tables.values()))),)


WHERE = "target (meta tables)"
OWN_SESSION = (mysql.OWN_SESSION, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
MIGRATION_SECONDS = 60
KEPT_CONNECTIONS = 2
NO_LIMIT = -1
URL = make_url("mysql+pymysql://")
COMPILED: dict[str, Any] = {"compiled_cache": LRUCache(500)}
_DIALECTS: dict[Server, Dialect] = {}
"""Without it each object of a process would compile its statements again."""
UNKNOWN_DATABASE, NO_SUCH_TABLE = 1049, 1146


@dataclass(frozen=True, slots=True)
class _Place:
    user: str
    host: str
    port: int
    where: str = WHERE


class MetaDatabase(TaskReader):
    """The meta schema of one task on the target. Its SELECTs run outside transactions: each sees what is committed."""

    def __init__(self, server: Server, schema: str, task: str) -> None:
        self.server, self.schema, self.task = server, schema, task
        self._process = os.getpid()
        self._engine = _engine(server, schema, QueuePool, pool_size=KEPT_CONNECTIONS, max_overflow=NO_LIMIT)

    def fetch(self, query: Any, parameters: Values | None = None) -> Sequence[AnyRow]:
        with self.reading() as db:
            return db.fetch(query, parameters)

    @contextlib.contextmanager
    def reading(self) -> Iterator[TaskWriter]:
        with self._coded(), self._own_engine().connect() as connection:
            yield TaskWriter(connection, self.task)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[TaskWriter]:
        """Return a read-only transaction whose queries all see the same snapshot."""
        with self._coded(), self._own_engine().begin() as connection:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.exec_driver_sql("START TRANSACTION")
            yield TaskWriter(connection, self.task)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[TaskWriter]:
        """Return a transaction that is committed at the end of the block and rolled back on any error."""
        with self._coded(), self._own_engine().begin() as connection:
            connection.exec_driver_sql("BEGIN")
            yield TaskWriter(connection, self.task)

    @contextlib.contextmanager
    def single(self) -> Iterator[TaskWriter]:
        """Return a connection for one statement that commits by itself. It must be idempotent: it may run twice."""
        with self.reading() as db:
            yield db

    def close(self) -> None:
        self._own_engine().dispose()

    def _own_engine(self) -> Engine:
        """Return the engine; after a fork, without the connections of the parent process."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    def refuse_other_version(self) -> None:
        """Raise MetaTooNew or MetaTooOld if the tables are not those of this version; wait for a process that creates
        them.
        """
        known = MIGRATIONS[-1].number
        if self.version() == known:
            return
        with self.reading() as db, self._alone(db.connection):
            found = self._version(db.connection)
        if found < known:
            raise MetaTooOld(self.schema, found, known)

    def version(self) -> int:
        with self.reading() as db:
            return self._version(db.connection)

    def _version(self, connection: Connection) -> int:
        found = connection.scalar(select(func.max(tables.migration.c.number))) or 0
        if found > MIGRATIONS[-1].number:
            raise MetaTooNew(self.schema, found, MIGRATIONS[-1].number)
        return int(found)

    @contextlib.contextmanager
    def _alone(self, connection: Connection) -> Iterator[None]:
        name = {"name": migration_lock(self.schema), "seconds": MIGRATION_SECONDS}
        if connection.scalar(text("SELECT GET_LOCK(:name, :seconds)"), name) != 1:
            raise MigrationBusy(self.schema, MIGRATION_SECONDS)
        try:
            yield
        finally:
            # The server has released the locks of a lost session. An error here would replace that of the block.
            if not connection.invalidated:
                with contextlib.suppress(DBAPIError):
                    connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name["name"]})

    @contextlib.contextmanager
    def _coded(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._translate(error) from error

    def _translate(self, error: DBAPIError) -> UnshardError:
        cause = cast(pymysql.err.Error, error.orig)
        if cause.args and cause.args[0] in (UNKNOWN_DATABASE, NO_SUCH_TABLE):
            return MetaMissing(self.schema, str(cause.args[-1]))
        place = _Place(self.server.user, self.server.host, self.server.port)
        return mysql.coded(cause, cast(DriverConnection, place), str(error.statement or "connect"))

    def migrate(self) -> None:
        """Create the schema and bring its tables to this version; may run in several processes at once."""
        if self.is_current():
            return
        with self._coded(), contextlib.closing(_engine(self.server, None).connect()) as connection:
            with self._alone(connection):
                connection.execute(text(f"CREATE DATABASE IF NOT EXISTS {identifier(self.schema)}"))
                connection.execute(text(f"USE {identifier(self.schema)}"))
                connection.execute(text(create_table(tables.migration)))
                self._apply(connection)

    def is_current(self) -> bool:
        """Return whether no step is missing; this SELECT needs no privilege to create tables."""
        try:
            return self.version() == MIGRATIONS[-1].number
        except MetaMissing:
            return False

    def _apply(self, connection: Connection) -> None:
        for step in MIGRATIONS[self._version(connection) :]:
            for statement in step.statements:
                connection.exec_driver_sql(statement)
            row = {"number": step.number, "description": step.description, "applied_at": tables.NOW}
            connection.execute(insert(tables.migration).values(row))
            connection.commit()


class ReadDatabase(MetaDatabase):
    """The meta schema of one task for a caller that changes no row."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[TaskWriter]:
        raise RuntimeError("this process must not write to the meta tables")
        yield

    single = transaction


class Records:
    """The rows of one subject."""

    def __init__(self, database: MetaDatabase) -> None:
        self._db = database


def migration_lock(schema: str) -> str:
    """Return the name of the lock that a session holds while it creates or drops a meta schema."""
    return f"unshard migrate {schema}"[:64]


def _engine(server: Server, schema: str | None, poolclass: type[Pool] = NullPool, **pool: Any) -> Engine:
    """Return an engine with a pool of its own.

    Engines of one account share a dialect and the compiled statements. The first connection of the first one makes the
    dialect known.
    """
    # FOUND_ROWS: an UPDATE also counts the rows that it finds and does not change. Callers rely on the count.
    connect = partial(_connect, server, database=schema, client_flag=CLIENT.FOUND_ROWS)
    known = _DIALECTS.get(server)
    if known is not None and known.server_version_info:
        engine = Engine(poolclass(connect, **pool), known, URL, execution_options=COMPILED)
    else:
        engine = create_engine(URL, creator=connect, poolclass=poolclass, execution_options=COMPILED, **pool)
        _DIALECTS[server] = engine.dialect
    event.listen(engine, "checkout", lambda connection, *_: connection.doubt())
    return engine


class PooledConnection(mysql.ServerConnection):
    """A connection whose first statement after `doubt` may open a new session."""

    server: Server | None = None
    is_doubted = False

    def doubt(self) -> None:
        """Let the next statement open a new session if the connection is lost."""
        self.is_doubted = True

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Run a statement; the first one after `doubt` runs again on a new session if the old one is lost."""
        is_first, self.is_doubted = self.is_doubted, False
        try:
            return int(super().query(sql, unbuffered))
        except pymysql.err.Error as error:
            if not is_first or self.server is None or not mysql.is_lost(error):
                raise
        self.connect()
        mysql.prepare(self, self.server, OWN_SESSION)
        return int(super().query(sql, unbuffered))

    def commit(self) -> None:
        if self._is_in_transaction():
            super().commit()

    def rollback(self) -> None:
        if self._is_in_transaction():
            super().rollback()

    def _is_in_transaction(self) -> bool:
        return bool(self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def _connect(server: Server, **options: Any) -> PooledConnection:
    connection = mysql.driver_connection(server, PooledConnection, autocommit=True, **options)
    connection.server, connection.where = server, WHERE
    mysql.prepare(connection, server, OWN_SESSION)
    return connection
