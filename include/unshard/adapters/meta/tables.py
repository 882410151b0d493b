"""The meta tables as SQLAlchemy Core sees them; `migrations` makes them.

Every key begins with the task, so that tasks share a schema without meeting. Texts that are compared
are utf8mb4_bin. JSON is LONGTEXT, because TiDB, MySQL and MariaDB disagree on the JSON type.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, String, Table, TypeDecorator, func
from sqlalchemy.dialects.mysql import DATETIME, LONGTEXT, TINYINT
from sqlalchemy.engine import Dialect

metadata = MetaData()
NOW = func.utc_timestamp(6)
"""The target's clock: the only one that every process shares."""


class Moment(TypeDecorator[datetime]):
    """DATETIME(6) that holds UTC and reads as an aware datetime."""

    impl = DATETIME(fsp=6)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Write UTC without a zone."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Read what was written as UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


def _key(name: str, size: int = 64) -> Column[Any]:
    return Column(name, String(size), primary_key=True)


def _number(name: str) -> Column[Any]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _text(name: str, size: int = 64) -> Column[Any]:
    return Column(name, String(size))


def _shard() -> tuple[Column[Any], ...]:
    return _key("source"), _key("shard_schema"), _key("shard_table", 128)


def _target() -> tuple[Column[Any], ...]:
    return _text("target_schema"), _text("target_table")


def _location(prefix: str = "") -> tuple[Column[Any], ...]:
    return _text(f"{prefix}file", 255), Column(f"{prefix}position", BigInteger)


migration = Table("migration", metadata, _number("number"), _text("description", 255), Column("applied_at", Moment))

task = Table("task", metadata, _key("task"), _text("config_hash"), Column("created_at", Moment),
             Column("updated_at", Moment))  # fmt: skip

source = Table(
    "source", metadata, _key("task"), _key("source"), _text("identity"), _text("flavor"), _text("phase", 16),
    *_location("snapshot_"), Column("snapshot_gtid", LONGTEXT), *_location("dump_end_"), Column("epoch", BigInteger),
    Column("added_at", Moment), Column("updated_at", Moment),
)  # fmt: skip

checkpoint = Table(
    "checkpoint", metadata, _key("task"), _key("source"), *_location(), Column("gtid", LONGTEXT),
    Column("window", BigInteger), Column("last_time", BigInteger), Column("committed_at", Moment),
)  # fmt: skip

structure = Table("structure", metadata, _key("task"), _key("digest", 32), Column("body", LONGTEXT),
                  Column("added_at", Moment))  # fmt: skip

shard = Table(
    "shard", metadata, _key("task"), *_shard(), *_target(), _text("digest", 32), *_location("start_"),
    Column("last_seq", BigInteger), Column("has_left", TINYINT), Column("dropped", TINYINT), _text("born", 32),
)  # fmt: skip

table_schema = Table(
    "table_schema", metadata, _key("task"), *_shard(), _number("number"), *_target(), *_location(),
    Column("window", BigInteger), _text("digest", 32), Column("recorded_at", Moment),
)  # fmt: skip

schema_default = Table(
    "schema_default", metadata, _key("task"), _key("source"), _key("shard_schema"), _key("file", 255),
    _number("position"), _text("charset"), _text("collation"), Column("added_at", Moment),
)  # fmt: skip

sequence = Table("sequence", metadata, _key("task"), _key("source"), _key("shard_schema"), _key("shard_table"))

passed_statement = Table(
    "passed_statement", metadata, _key("task"), _key("source"), _key("file", 255), _number("position"),
    Column("statement", LONGTEXT), Column("window", BigInteger), Column("passed_at", Moment),
)  # fmt: skip

load_chunk = Table(
    "load_chunk", metadata, _key("task"), Column("id", BigInteger, primary_key=True, autoincrement=True),
    _text("source"), _text("shard_schema"), _text("shard_table", 128), *_target(), Column("number", Integer),
    Column("lower_bound", LONGTEXT), Column("upper_bound", LONGTEXT), _text("state", 16), _text("path", 1024),
    Column("row_count", BigInteger), Column("bytes", BigInteger), Column("loaded_rows", BigInteger),
    Column("updated_at", Moment),
)  # fmt: skip

chunk_pace = Table(
    "chunk_pace", metadata, _key("task"), _number("id"), Column("weight", BigInteger), Column("dumped_at", Moment),
    Column("dump_millis", BigInteger), Column("loaded_at", Moment), Column("load_millis", BigInteger),
)  # fmt: skip

dump_rate = Table("dump_rate", metadata, _key("task"), _key("source"), Column("paid", Double),
                  Column("bytes", BigInteger), Column("waited", Double))  # fmt: skip

dump_condition = Table("dump_condition", metadata, _key("task"), _key("source"), Column("body", LONGTEXT))

late_index = Table("late_index", metadata, _key("task"), _key("target_schema"), _key("target_table"),
                   Column("indexes", LONGTEXT), Column("noted_at", Moment))  # fmt: skip

window = Table(
    "window", metadata, _key("task"), _key("source"), _number("number"), _text("state", 16), Column("plan", LONGTEXT),
    Column("rows_applied", BigInteger), Column("rows_held", BigInteger), Column("began_at", Moment),
    Column("committed_at", Moment),
)  # fmt: skip

online_ddl = Table("online_ddl", metadata, _key("task"), _key("source"), _key("ghost_schema"), _key("ghost_table"),
                   Column("ghost", LONGTEXT))  # fmt: skip

pace = Table("pace", metadata, _key("task"), _key("source"), Column("windows", LONGTEXT))

precheck = Table("precheck", metadata, _key("task"), Column("items", LONGTEXT), Column("checked_at", Moment))

fence = Table("fence", metadata, _key("task"), _key("source"), _key("target_schema"), _key("target_table"),
              Column("window", BigInteger), Column("epoch", BigInteger))  # fmt: skip

collision = Table(
    "collision", metadata, _key("task"), _key("digest", 32), *_target(), Column("key_shown", LONGTEXT),
    Column("key_condition", LONGTEXT), _text("source"), _text("shard_schema"), _text("shard_table", 128),
    _text("owner_source"), _text("owner_schema"), _text("owner_table", 128), _text("found", 16),
    Column("window", BigInteger), _text("state", 16), Column("times", BigInteger), Column("others", BigInteger),
    Column("first_at", Moment), Column("last_at", Moment),
)  # fmt: skip

fence_step = Table(
    "fence_step", metadata, _key("task"), _key("source"), _key("target_schema"), _key("target_table"),
    Column("window", BigInteger), _number("number"), _text("kind", 16), Column("upper_key", LONGTEXT),
    Column("key_columns", LONGTEXT), Column("done", TINYINT),
)  # fmt: skip

shard_ddl = Table(
    "shard_ddl", metadata, _key("task"), *_shard(), _number("seq"), *_target(), *_location(),
    Column("statement", LONGTEXT), Column("routed", LONGTEXT), Column("agreement", LONGTEXT),
    _text("before_digest", 32), _text("after_digest", 32), _text("state", 16), Column("reason", LONGTEXT),
    Column("alone", TINYINT), _text("decision", 16), Column("replacement", LONGTEXT), _text("outcome", 16),
    _text("lock_id", 255), Column("window", BigInteger), Column("seen_at", Moment), Column("resolved_at", Moment),
)  # fmt: skip

ddl_lock = Table(
    "ddl_lock", metadata, _key("task"), _key("lock_id", 255), *_target(), Column("number", BigInteger),
    _text("state", 16), Column("entry", LONGTEXT), _text("owner"), Column("forced", TINYINT), Column("error", LONGTEXT),
    Column("opened_at", Moment), Column("seen_at", Moment), Column("started_at", Moment), Column("resolved_at", Moment),
    _text("outcome", 16), _text("decision", 16), Column("replacement", LONGTEXT), Column("done", Integer),
)  # fmt: skip

ddl_lock_guard = Table("ddl_lock_guard", metadata, _key("task"), _key("lock_id", 255))

ddl_lock_member = Table("ddl_lock_member", metadata, _key("task"), _key("lock_id", 255), *_shard(), _text("state", 16),
                        Column("seq", BigInteger), Column("updated_at", Moment))  # fmt: skip

ddl_history = Table(
    "ddl_history", metadata, _key("task"), Column("id", BigInteger, primary_key=True, autoincrement=True),
    _text("lock_id", 255), _text("source"), Column("ddl", LONGTEXT), _text("before_digest", 32),
    _text("wanted_digest", 32), Column("sql_mode", BigInteger), Column("started_at", Moment),
    Column("done_at", Moment), _text("outcome", 16),
    Column("error", LONGTEXT),
)  # fmt: skip

operator_action = Table(
    "operator_action", metadata, _key("task"), Column("id", BigInteger, primary_key=True, autoincrement=True),
    _text("lock_id", 255), _text("action", 32), _text("who", 255), _text("via"), Column("reason", LONGTEXT),
    Column("details", LONGTEXT), Column("done_at", Moment),
)  # fmt: skip

rules = Table("rules", metadata, _key("task"), _key("source"), _text("digest", 32), Column("body", LONGTEXT),
              *_location(), Column("adopted_at", Moment))  # fmt: skip

halt = Table("halt", metadata, _key("task"), _text("kind", 16), _text("who", 255), _text("via"),
             Column("reason", LONGTEXT), Column("halted_at", Moment))  # fmt: skip

statement_order = Table(
    "statement_order", metadata, _key("task"), Column("id", BigInteger, primary_key=True, autoincrement=True),
    _text("source"), *_location(), _text("gtid", 255), _text("kind", 16), Column("statements", LONGTEXT),
    _text("state", 16), Column("action", BigInteger), Column("window", BigInteger), *_location("met_"),
    Column("met_text", LONGTEXT), Column("ended_at", Moment),
)  # fmt: skip

row_error = Table(
    "row_error", metadata, _key("task"), _key("target_schema"), _key("target_table"), _key("digest", 32),
    _text("source"), _text("shard_schema"), _text("shard_table", 128), Column("key_shown", LONGTEXT),
    _text("column_name"), Column("words", LONGTEXT), Column("row_json", LONGTEXT), Column("window", BigInteger),
    _text("state", 16), Column("times", BigInteger), Column("first_at", Moment), Column("last_at", Moment),
)  # fmt: skip

awaited_row = Table(
    "awaited_row", metadata, _key("task"), _key("source"), _key("target_schema"), _key("target_table"),
    _key("digest", 32), _text("shard_schema"), _text("shard_table", 128), Column("key_shown", LONGTEXT),
    Column("since", Moment),
)  # fmt: skip

stopped_target = Table(
    "stopped_target", metadata, _key("task"), _key("source"), _key("target_schema"), _key("target_table"),
    Column("window", BigInteger), _text("column_name"), Column("key_shown", LONGTEXT), Column("words", LONGTEXT),
    _text("structure", 32), Column("times", BigInteger), Column("since", Moment), Column("partial", TINYINT),
    Column("is_open", TINYINT),
)  # fmt: skip

stop_error = Table(
    "stop_error", metadata, _key("task"), _key("source"), _key("target_schema"), _key("target_table"),
    _text("code", 16), Column("parts", LONGTEXT),
)  # fmt: skip

held_rows = Table(
    "held_rows", metadata, _key("task"), *_shard(), _number("seq"), _number("window"), _number("part"),
    _text("path", 1024), Column("row_count", BigInteger), Column("bytes", BigInteger), _text("structure", 32),
    Column("safe", TINYINT), Column("raw", TINYINT), Column("held_at", Moment),
)  # fmt: skip
