"""SQL of the last writes: the time of the last write of a source into a target table, stored twice.

One copy is in the fence (meta schema), the other in a table of the target's schema. Each transaction that writes rows
changes both, and only if they are equal. A backup that is older than the other one has an earlier time.
"""

from unshard.core.sql.quoting import qualified

NAME = "unshard_last_write"
"""The table in each target schema; no shard may have this name."""
KEY = ("task", "source", "target_schema", "target_table")
SAME = " AND ".join(("w.meta_schema = %s", *(f"w.{name} = f.{name}" for name in KEY)))
PAIR = "f.task = %s AND f.source = %s AND f.target_schema = %s AND f.target_table = %s"
LATER = "{0}.written = GREATEST({0}.written + 1, FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000000))"
OF_TASK = "meta_schema = %s AND task = %s AND target_schema = %s"
"""A schema may be a copy of another one: rows with the name of that one do not count."""


def create_copies(schema: str) -> str:
    """Return the CREATE TABLE of the copy in a target schema."""
    names = ("meta_schema", *KEY)
    columns = ", ".join(f"{name} VARCHAR(64) NOT NULL" for name in names)
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified(schema, NAME)} ({columns},"
        " written BIGINT NOT NULL COMMENT 'microseconds since 1970',"
        f" PRIMARY KEY ({', '.join(names)}))"
        " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
        " COMMENT='unshard: last write of each task; back it up with the other tables'"
    )


def insert(schema: str) -> str:
    """Return the INSERT of a copy that has no write yet: meta schema, task, source, schema, table."""
    return f"INSERT IGNORE INTO {qualified(schema, NAME)} VALUES (%s, %s, %s, %s, %s, 0)"  # noqa: S608


def insert_fence(meta_schema: str) -> str:
    """Return the INSERT of a fence with the epoch of its source: task, source, schema, table; task and source."""
    epoch = f"SELECT epoch FROM {qualified(meta_schema, 'source')} WHERE task = %s AND source = %s"  # noqa: S608
    return (
        f"INSERT IGNORE INTO {qualified(meta_schema, 'fence')}"  # noqa: S608
        " (task, source, target_schema, target_table, `window`, epoch, written)"
        f" VALUES (%s, %s, %s, %s, 0, COALESCE(({epoch}), 0), 0)"
    )


def select_copies(meta_schema: str, schema: str) -> str:
    """Return the SELECT of a fence and both copies."""
    tables = f"{qualified(meta_schema, 'fence')} f LEFT JOIN {qualified(schema, NAME)} w ON {SAME}"
    return f"SELECT f.`window`, f.epoch, f.written, w.written FROM {tables} WHERE {PAIR}"  # noqa: S608


def update_copies(meta_schema: str, schema: str, sets: str = "", where: str = "") -> str:
    """Return the UPDATE of both copies, which changes nothing if they differ; `sets` and `where` are of the fence."""
    tables = f"{qualified(meta_schema, 'fence')} f JOIN {qualified(schema, NAME)} w"
    on, both = f"{SAME} AND w.written = f.written", f"{LATER.format('f')}, {LATER.format('w')}"
    return f"UPDATE {tables} ON {on} SET {sets}{both} WHERE {PAIR}{where}"  # noqa: S608


def differing(meta_schema: str, schema: str) -> str:
    """Return the SELECT of source, table and both copies where they differ: meta schema, task, schema.

    The values are given twice. One statement sees one moment.
    """
    fence, last = qualified(meta_schema, "fence"), qualified(schema, NAME)
    known = (
        f"SELECT f.source, f.target_table, f.written, COALESCE(w.written, 0) FROM {fence} f"  # noqa: S608
        f" LEFT JOIN {last} w ON {SAME} WHERE f.task = %s AND f.target_schema = %s"
        " AND f.written <> COALESCE(w.written, 0)"
    )
    unknown = (
        f"SELECT w.source, w.target_table, 0, w.written FROM {last} w LEFT JOIN {fence} f"  # noqa: S608
        f" ON {' AND '.join(f'f.{name} = w.{name}' for name in KEY)} WHERE w.meta_schema = %s AND w.task = %s"
        " AND w.target_schema = %s AND f.task IS NULL AND w.written <> 0"
    )
    return f"{known} UNION ALL {unknown}"


def alone(schema: str) -> str:
    """Return the SELECT of source, table and copies without a meta schema: meta schema, task, schema."""
    table = qualified(schema, NAME)
    return f"SELECT source, target_table, 0, written FROM {table} WHERE {OF_TASK} AND written <> 0"  # noqa: S608


def fences(meta_schema: str) -> str:
    """Return the SELECT of source, schema, table and last write of a task's fences: task."""
    table = qualified(meta_schema, "fence")
    where = "task = %s AND written <> 0"
    return f"SELECT source, target_schema, target_table, written FROM {table} WHERE {where}"  # noqa: S608


def of_others(schema: str) -> str:
    """Return the SELECT that finds copies of other tasks: meta schema, task, schema."""
    return f"SELECT 1 FROM {qualified(schema, NAME)} WHERE NOT ({OF_TASK}) LIMIT 1"  # noqa: S608


def delete_copies(schema: str) -> str:
    """Return the DELETE of a task's copies in a target schema: meta schema, task, schema."""
    return f"DELETE FROM {qualified(schema, NAME)} WHERE {OF_TASK}"  # noqa: S608


def forget_fences(meta_schema: str) -> str:
    """Return the UPDATE after which no fence of a task has a write in a target schema: task, schema."""
    table = qualified(meta_schema, "fence")
    return f"UPDATE {table} SET written = 0 WHERE task = %s AND target_schema = %s"  # noqa: S608
