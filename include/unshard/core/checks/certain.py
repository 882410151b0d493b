"""Findings that `ignore-checking-items: [all]` cannot hide: without the check, the task would stop at the same fact.

`tests/unit/checks/test_coverage.py` says for each US-2xxx and US-6xxx code which check finds it.
"""

from unshard.errors import UnshardError
from unshard.errors.base import ServerError
from unshard.errors.checks import (
    BinlogDisabled,
    KeysOverlap,
    PrivilegesMissing,
    ServerIdZero,
    ShardsDiffer,
    StartBeyond,
    StartGone,
    StructureRefused,
    TargetNamesAlike,
    TargetReadOnly,
    TargetTableUnfit,
    TargetTooOld,
)
from unshard.errors.config import ExtractionNotFound, MappingAmbiguous, MappingNameUnfit, RouteAmbiguous
from unshard.errors.full import (
    ConditionChanged,
    ConditionRefused,
    DumpLeft,
    NotDumped,
    TargetNotEmpty,
    TransactionsPrepared,
)
from unshard.errors.join import ShardsWithoutJoin
from unshard.errors.meta import BackupOlder, StorageFailed, StoredFileMissing
from unshard.errors.relay import GtidNotFound
from unshard.errors.rows import ColumnNotInTarget, ColumnTypesDiffer, EngineNotTransactional, KeyColumnMissing
from unshard.errors.rules import (
    ExtractedColumnMissing,
    ExtractedColumnTaken,
    ExtractedValueUnfit,
    ExtractionNeedsTable,
    MappedColumnMissing,
    MappedColumnUnfit,
    MappedIdsTooLarge,
    MappedNotKey,
    RowFilterFailed,
)
from unshard.errors.source import TableUnsupported

UNFIT: tuple[type[UnshardError], ...] = (
    ColumnNotInTarget,
    ColumnTypesDiffer,
    ExtractedColumnMissing,
    ExtractedColumnTaken,
    ExtractedValueUnfit,
    ExtractionNeedsTable,
    KeyColumnMissing,
    MappedColumnMissing,
    MappedColumnUnfit,
    MappedNotKey,
)
"""Errors of a structure, or of the names of a shard, with which no row of the shard can be written."""
CERTAIN: tuple[type[UnshardError], ...] = (
    *UNFIT,
    BackupOlder,
    BinlogDisabled,
    ConditionChanged,
    ConditionRefused,
    DumpLeft,
    EngineNotTransactional,
    ExtractionNotFound,
    GtidNotFound,
    MappingAmbiguous,
    MappingNameUnfit,
    NotDumped,
    RouteAmbiguous,
    ServerError,
    ShardsDiffer,
    ShardsWithoutJoin,
    StartBeyond,
    StartGone,
    StorageFailed,
    StoredFileMissing,
    StructureRefused,
    TableUnsupported,
    TargetNamesAlike,
    TargetNotEmpty,
    TargetReadOnly,
    TargetTableUnfit,
    TargetTooOld,
    TransactionsPrepared,
)
"""Errors that the first steps of a task raise if they find what the check found."""


LIKELY: tuple[type[UnshardError], ...] = (
    KeysOverlap,
    MappedIdsTooLarge,
    PrivilegesMissing,
    RowFilterFailed,
    ServerIdZero,
)
"""Errors with which a later step fails, unless a row is not dumped or changed, or the server lists no role of the
account: `all` does not ignore them, their own item does.
"""


def codes(kinds: tuple[type[UnshardError], ...]) -> frozenset[str]:
    """Return the codes of the classes and of their subclasses."""
    return frozenset(each.code for kind in kinds for each in (kind, *kind.__subclasses__()))
