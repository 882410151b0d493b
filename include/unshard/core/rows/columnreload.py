"""Decides which columns of a shard may be read again, how, and whether a reload that was interrupted continues.

A reload goes through the rows of a shard by key, in chunks. Its progress is the last key of the last chunk that
is written. It continues from there as long as nothing has changed that the written values depend on: the shard's
structure, the number of its DDLs, and the structure of the target. Otherwise it begins again.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from unshard.core.ddl.lock import DdlLock, Outcome
from unshard.core.ddl.queue import OperatorDecision, ShardState
from unshard.core.model import Shard, TableId, TableSchema, lowered
from unshard.core.shown import shell
from unshard.core.sql.words import TIME_FOR_NULL

FILLED = (
    "fills old rows with each server's own value of {columns}: target and shards differ, as validate reports, until"
    " {columns} is reloaded from {shards} after this DDL: `unshard reload TASK --shard SHARD --columns {names}`;"
    " if it is in the table's key, or the table has no key, load the target anew"
)
MAY_FILL = re.compile(
    rf"\bADD\b.*\b(DEFAULT|AUTO_INCREMENT|SERIAL|TIMESTAMP)\b|{TIME_FOR_NULL}", re.IGNORECASE | re.DOTALL
)
CHUNK_BYTES = 4 << 20
"""Bytes of values that a chunk should have at most: windows of the source wait while it is read and written."""


class ReloadState(StrEnum):
    """The state of a reload."""

    READING = "reading"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Reload:
    """The reload of columns of a shard, as it is stored."""

    shard: Shard
    target: TableId
    columns: tuple[str, ...]
    state: ReloadState
    basis: str
    """What the written values depend on."""
    reached: tuple[bytes, ...] | None
    """Last key of the last written chunk; None: at the beginning."""
    chunks: int
    rows_read: int
    rows_changed: int
    began_at: datetime
    changed_at: datetime

    @property
    def is_done(self) -> bool:
        return self.state is ReloadState.DONE


def names_digest(columns: Collection[str]) -> str:
    """Identify a set of columns: their order and their case do not matter."""
    return hashlib.sha256("\0".join(sorted({name.lower() for name in columns})).encode()).hexdigest()[:32]


def basis_of(state: ShardState, present: TableSchema, target: TableSchema) -> str:
    """Return a text that changes with everything that written values depend on."""
    text = "\0".join((state.structure, str(state.last_seq), state.shard_uid, present.digest, target.digest))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def continues(found: Reload | None, basis: str) -> bool:
    """Whether a reload goes on where it was."""
    return found is not None and not found.is_done and found.basis == basis


def unfit_column(name: str, present: TableSchema, target: TableSchema, target_name: str | None) -> str:
    """Return why a column of a shard cannot be reloaded; empty if it can. `target_name` is its name in the target."""
    column = present.by_name.get(name.lower())
    if column is None:
        return f"the shard has only {', '.join(present.names)}"
    if column.is_generated:
        return "it is generated"
    if target_name is None:
        return "the target has no such column that the shard fills"
    if target.column(target_name).is_generated:
        return "it is generated in the target"
    if target_name.lower() in lowered(target.key):
        return f"rows of the target are found by it: its key is ({', '.join(target.key)})"
    unique = (index for index in target.indexes if index.unique and target_name.lower() in index.names)
    return next((f"it is in the unique key {index.name} of the target" for index in unique), "")


def updated_by_server(target: TableSchema, written: Collection[str]) -> tuple[str, ...]:
    """Return the columns of the target that the server would change in an UPDATE that does not name them."""
    names = lowered(written)
    changed = (column.name for column in target.written if "on update" in column.extra.lower())
    return tuple(name for name in changed if name.lower() not in names)


def next_rows(rows: int, size: int, most: int) -> int:
    """Return how many rows the next chunk should have, after one of `rows` rows and `size` bytes."""
    if not rows or not size:
        return most
    return max(1, min(most, rows * CHUNK_BYTES // size, 2 * rows))


def first_names(shards: Sequence[Shard], most: int = 5) -> str:
    """Return the first names of shards as arguments of the command line."""
    shown = ", ".join(f"{each.source}/{each.table}" for each in shards[:most])
    return f"{shown} and {len(shards) - most} more" if len(shards) > most else shown or "none"


def own_values(columns: Sequence[str], to_reload: Sequence[Shard]) -> str:
    """Return the warning about columns that each server fills with its own values; empty without such columns.

    `to_reload` are the shards that are not reloaded yet; empty: all, because the DDL has not been executed.
    """
    if not columns:
        return ""
    shards = first_names(to_reload) if to_reload else "every shard"
    return FILLED.format(columns=", ".join(columns), names=shell(",".join(columns)), shards=shards)


def filled_columns(lock: DdlLock) -> tuple[str, ...]:
    """Return the columns whose old rows differ from server to server once the target has the lock's DDL."""
    texts = lock.replacement or lock.entry.replacement or (lock.entry.routed,)
    is_not_executed = lock.verdict is OperatorDecision.SKIP or lock.outcome in (Outcome.SKIPPED, Outcome.WITHDRAWN)
    if is_not_executed or not (lock.is_forced or any(map(MAY_FILL.search, (*texts, lock.fingerprint)))):
        return ()
    from unshard.core.ddl.lineage import ExecutedDdl
    from unshard.core.ddl.sessioneffects import filled_by_each, noted_columns  # these bring the tokenizer

    statement = lock.entry.statement
    explicit = bool(dict(statement.session).get("explicit_defaults_for_timestamp", 1))
    filled = (name for text in texts for name in filled_by_each(ExecutedDdl(text, statement.sql_mode), explicit))
    # Without `unlock`, the sessions of all shards had the same effect.
    return tuple(dict.fromkeys((*filled, *noted_columns(lock.fingerprint, "" if lock.is_forced else TIME_FOR_NULL))))
