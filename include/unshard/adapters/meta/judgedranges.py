"""The ledger of validations: the ranges of each target's key with their last verdict."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, func, literal_column, select, type_coerce

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.rowvalues import target_name, target_of
from unshard.core.model import TableId
from unshard.core.sql.keyrange import KeyRange, read_bound, write_bound
from unshard.core.validate.ledger import PROOF_HOURS, JudgedRange, Proof, RangeFound, RangeVerdict

JUDGED_RANGE = tables.judged_range


class JudgedRanges(Records):
    """Rows of `judged_range`."""

    def of(self, target: TableId, key: Sequence[str]) -> list[JudgedRange]:
        """Return the ranges of a target that were compared by this key."""
        rows = self._db.select(JUDGED_RANGE, key_columns=json.dumps(key), target=target)
        return [
            JudgedRange(
                KeyRange(read_bound(row.range_lower), read_bound(row.range_upper)),
                RangeFound(row.row_count, RangeVerdict(row.verdict), None if row.total is None else int(row.total)),
                row.round,
                row.compared_at,
            )
            for row in rows
        ]

    def now(self) -> datetime:
        """Return the time of the target's clock, which `JudgedRange.at` is of."""
        (row,) = self._db.fetch(select(type_coerce(tables.NOW, JUDGED_RANGE.c.compared_at.type).label("now")))
        return row.now  # type: ignore[no-any-return]

    def forget(self, target: TableId, key: Sequence[str], ranges: Iterable[JudgedRange]) -> None:
        """Remove these ranges of a target, and all that were compared by another key."""
        column, digests = JUDGED_RANGE.c, [_digest(each.span) for each in ranges]
        useless = column.digest.in_(digests) | (column.key_columns != json.dumps(key))
        with self._db.transaction() as db:
            db.delete(JUDGED_RANGE, useless, target=target)

    def record(self, target: TableId, key: Sequence[str], span: KeyRange, found: RangeFound, number: int) -> None:
        """Record what validation `number` has found in a range."""
        values = {
            "range_lower": write_bound(span.lower),
            "range_upper": write_bound(span.upper),
            "key_columns": json.dumps(key),
            "row_count": found.rows,
            "total": None if found.total is None else str(found.total),
            "verdict": found.verdict,
            "round": number,
            "compared_at": tables.NOW,
        }
        with self._db.transaction() as db:
            db.put(JUDGED_RANGE, {"target": target, "digest": _digest(span)}, values)

    def proofs(self) -> tuple[Proof, ...]:
        """Return what is known of each target that was validated."""
        column = JUDGED_RANGE.c
        age = func.timestampdiff(literal_column("SECOND"), column.compared_at, tables.NOW)
        proven = (age <= PROOF_HOURS * 3600) & (column.verdict == RangeVerdict.EQUAL)
        query = (
            select(
                *target_name(JUDGED_RANGE),
                func.sum(column.row_count).label("rows"),
                func.sum(case((proven, column.row_count), else_=0)).label("fresh"),
                func.max(age).label("age"),
                func.sum(case((column.verdict == RangeVerdict.DIFFERENT, 1), else_=0)).label("different"),
                func.sum(case((column.verdict == RangeVerdict.PENDING, 1), else_=0)).label("pending"),
            )
            .where(self._db.mine(JUDGED_RANGE))
            .group_by(*target_name(JUDGED_RANGE))
        )
        return tuple(
            Proof(
                target_of(row),
                int(row.rows),
                int(row.fresh),
                timedelta(seconds=int(row.age)),
                int(row.different),
                int(row.pending),
            )
            for row in sorted(self._db.fetch(query), key=target_of)
        )


def _digest(span: KeyRange) -> str:
    return hashlib.md5(write_bound(span.lower).encode(), usedforsecurity=False).hexdigest()
