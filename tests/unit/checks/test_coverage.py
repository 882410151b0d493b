"""For each code of servers, prechecks, dump and target: the check that finds it, or why it cannot be known before.

A new error of US-2xxx or US-6xxx needs a line here. What can be known before the start is an item of `unshard check`.
"""

import ast
from pathlib import Path

import pytest

from tests.codederrors import all_errors
from unshard.core.checks.itemnames import ITEMS
from unshard.core.checks.items import CERTAIN, LIKELY, codes
from unshard.errors.base import ServerError, TargetError
from unshard.errors.checks import CheckFailed, CheckWarned

ROOT = Path(__file__).parents[3]
MODULES = (*(ROOT / "include/unshard/units/checks").glob("*.py"), *(ROOT / "include/unshard/core/checks").glob("*.py"))
MORE_ITEMS = {"reachable", "changed_rules", "check --decoder"}
"""Items that have no name in `ignore-checking-items`."""

ROWS = "depends on rows that are read later"
FAILURE = "a failure at a later moment: the server, a connection, the storage or another program"
ORDER = "the order of the commands or tasks that a user starts"
DEFECT = "a defect, or meta tables that were changed by hand"
RESULT = "the result of the prechecks themselves"
FILE = "the task file is rejected when it is read"
VALIDATION = "concerns `unshard validate` only, after the load"
WHY_NOT = {ROWS, FAILURE, ORDER, DEFECT, RESULT, FILE, VALIDATION}

TABLE: dict[str, str | tuple[str, ...]] = {
    "ServerUnreachable": ("reachable",),
    "AccessDenied": ("reachable",),
    "MissingPrivilege": ("dump_privilege", "target_privilege"),
    "UnknownDatabase": ("reachable",),
    "ConnectionLost": FAILURE,
    "ServerFull": ("reachable", "conn_number"),
    "ServerBusy": FAILURE,
    "StatementRefused": ("reachable", "target_structure"),
    "SessionVariableRefused": ("reachable",),
    "TableMissing": FAILURE,
    "TableUnsupported": ("table_schema",),
    "TlsFailed": ("reachable",),
    "FileRequested": ("reachable",),
    "PasswordRequested": ("reachable",),
    "ProtocolBroken": ("reachable",),
    "UnknownColumnType": ("table_schema",),
    "ValueNotCanonical": DEFECT,
    "JsonNumberLost": ROWS,
    "StructuresUnsteady": FAILURE,
    "NoSnapshot": ORDER,
    "StructureChanged": FAILURE,
    "TransactionsPrepared": ("prepared_transactions",),
    "ConditionRefused": ("dump_condition",),
    "ConditionChanged": ("full_load",),
    "BinlogDisabled": ("binlog_enable",),
    "BinlogSettingWrong": ("binlog_format",),
    "ServerIdZero": ("server_id",),
    "BinlogHidesSchemas": ("binlog_db",),
    "PrivilegesMissing": ("replication_privilege", "dump_privilege", "target_privilege", "meta_schema"),
    "ShardsDiffer": ("schema_of_shard_tables",),
    "KeylessTable": ("table_schema",),
    "NotTransactional": ("table_schema",),
    "FlavorWrong": ("version",),
    "PrecheckFailed": RESULT,
    "RuleIdle": ("rules",),
    "SequenceLeftOut": ("sequence",),
    "VersionUntested": ("version",),
    "RetentionShort": ("binlog_retention",),
    "OnlineDdlUnderWay": ("online_ddl",),
    "ServerIdTwice": ("server_id",),
    "CaseRulesDiffer": ("server_settings",),
    "TargetNamesAlike": ("server_settings",),
    "KeysCountUp": ("auto_increment_ID",),
    "KeysOverlap": ("key_overlap",),
    "ForeignKeysLeft": ("table_schema",),
    "ConnectionsScarce": ("conn_number",),
    "StartGone": ("meta_position",),
    "CollationUnknown": ("collation",),
    "StorageShort": ("free_space",),
    "ShadowDoubtful": ("online_ddl",),
    "RowImageSparse": ("binlog_row_image",),
    "StartBeyond": ("meta_position",),
    "TargetNarrower": ("target_tables",),
    "StartWithin": ("meta_position",),
    "ZonesDiffer": ("server_settings",),
    "ModesDiffer": ("server_settings",),
    "CollationsDiffer": ("server_settings", "collation"),
    "TargetTooOld": ("version",),
    "KeylessUnderCondition": ("dump_condition",),
    "ImageUnderCondition": ("dump_condition",),
    "StructureRefused": ("target_structure",),
    "TrialTableRefused": ("target_structure",),
    "StructureAltered": ("target_structure",),
    "KeyShortened": ("target_structure",),
    "IndexesLeftOut": ("target_structure",),
    "PrimaryKeyClustered": ("clustered_key",),
    "PrimaryKeyChoiceUnknown": ("reachable",),
    "TargetSettingWrong": ("target_settings",),
    "TargetReadOnly": ("target_structure",),
    "DecodersDiffer": ("check --decoder",),
    "ReferenceDecoderFailed": ("check --decoder",),
    "BinlogEngineWrong": ("binlog_storage_engine",),
    "NoTablesYet": ("shards",),
    "ImageFindsNoRow": ("target_tables",),
    "ConditionFindsNoRow": ("target_tables",),
    "StartTimeNeedsKey": ("target_tables",),
    "PositionMustBeExact": ("target_tables",),
    "EngineKept": ("target_structure",),
    "ServerReadOnly": ("target_structure",),
    "ForeignKeysCascade": ("table_schema",),
    "ForeignKeyLacking": ("table_schema",),
    "ForeignKeyNotOfShards": ("target_tables",),
    "ReferencedRowMissing": ROWS,
    "RowReferenced": ROWS,
    "ConnectedTargetWaits": ROWS,
    "EngineReplaced": ("target_structure",),
    "StorageLeftOut": ("target_structure",),
    "NoTargetTable": ("target_tables",),
    "RowRefused": ROWS,
    "ColumnNotInTarget": ("target_tables",),
    "ColumnTypesDiffer": ("target_tables", "target_structure"),
    "KeyColumnMissing": ("target_tables",),
    "Collision": ROWS,
    "KeyOutOfOrder": ROWS,
    "RowsMissing": ROWS,
    "EngineNotTransactional": ("target_tables", "target_structure"),
    "FenceMissing": DEFECT,
    "StatementWarned": ROWS,
    "NotInSync": ORDER,
    "RelayNeedsFolder": FILE,
    "ExtractedColumnMissing": ("target_tables",),
    "ExtractedColumnTaken": ("target_tables",),
    "ExtractedValueUnfit": ("target_tables",),
    "ExtractionNeedsTable": ("target_tables",),
    "MappedColumnMissing": ("target_tables",),
    "MappedColumnUnfit": ("target_tables",),
    "MappedNotKey": ("target_tables",),
    "MappedIdsTooLarge": ("column_mapping",),
    "MappingOverlap": ("column_mapping",),
    "ShardRowsAlike": ("drop_shard_rows",),
    "ShardRowsUnmarked": FAILURE,
    "ShardRowsNotDeleted": FAILURE,
    "RowsFiltered": ROWS,
    "RowFilterFailed": ("expression_filter",),
    "RowFilterIdle": ("expression_filter",),
    "WriteRefused": FAILURE,
    "ColumnLeftOut": ROWS,
    "ChangedRowMissing": ROWS,
    "MovedRowUnknown": ROWS,
    "DeferredRowMissing": ROWS,
    "TargetNotEmpty": ("target_tables",),
    "NotDumped": ("full_load",),
    "NotLoaded": ORDER,
    "ChunkGone": FAILURE,
    "LoadCollision": ROWS,
    "DumpLeft": ("full_load",),
    "LoadRefused": ROWS,
    "LocalInfileOff": ("local_infile",),
    "TargetTableUnfit": ("target_tables", "target_structure"),
    "PacketTooSmall": ("server_settings",),
    "NothingToValidate": VALIDATION,
    "NoProgress": DEFECT,
    "NothingInCommon": VALIDATION,
}
KINDS = {kind.__name__: kind for kind in all_errors() if kind.code.startswith(("US-2", "US-6"))}
INDIRECT = {
    "ColumnNotInTarget": "refuse_types",
    "ColumnTypesDiffer": "refuse_types",
    "KeyColumnMissing": "refuse_types",
    "ExtractedColumnMissing": "constants_of",
    "ExtractedColumnTaken": "constants_of",
    "ExtractedValueUnfit": "constants_of",
    "MappedColumnMissing": "fitted",
    "MappedColumnUnfit": "fitted",
    "MappedNotKey": "fitted",
    "TableUnsupported": "structures",
    "ReferenceDecoderFailed": "read_events",
}
"""Errors that a function or module raises that the checks call."""
NODES = [node for path in MODULES if path.name != "certain.py" for node in ast.walk(ast.parse(path.read_text()))]
IMPORTED = {alias.name for node in NODES if isinstance(node, ast.ImportFrom) for alias in node.names}
IMPORTED |= {node.attr for node in NODES if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "checks"}
FOUND = [name for name, items in TABLE.items() if not isinstance(items, str)]


def test_the_table_has_every_code() -> None:
    assert {*TABLE} == {*KINDS}, "say which check finds the error, or why it cannot be known before"


@pytest.mark.parametrize("name", TABLE)
def test_each_line_names_items_of_the_check_or_a_reason(name: str) -> None:
    found = TABLE[name]
    assert found in WHY_NOT if isinstance(found, str) else found and {*found} <= {*ITEMS, *MORE_ITEMS}


@pytest.mark.parametrize("name", FOUND)
def test_the_checks_raise_each_error_that_they_find(name: str) -> None:
    """An answer of a server becomes an item as it is; the others are named in the checks, or in what these call."""
    assert INDIRECT.get(name, name) in IMPORTED or issubclass(KINDS[name], ServerError)


def test_findings_of_prechecks_are_found_by_prechecks() -> None:
    findings = {name for name, kind in KINDS.items() if issubclass(kind, CheckFailed | CheckWarned)}
    assert findings <= {*FOUND}


def test_an_error_that_all_does_not_ignore_is_found() -> None:
    own = {kind.__name__ for kind in (*CERTAIN, *LIKELY) if kind.__name__ in KINDS}
    assert own <= {*FOUND}
    assert not any(issubclass(kind, CheckWarned) for kind in (*CERTAIN, *LIKELY))
    assert "US-2001" in codes(CERTAIN) and not codes(CERTAIN) & codes(LIKELY)


def test_errors_of_the_target_that_are_found_by_its_structure_cannot_be_ignored() -> None:
    """Of the US-6xxx errors, only these are found and may be ignored: no step of the start rejects them."""
    found = {name for name in FOUND if issubclass(KINDS[name], TargetError)}
    assert found - {kind.__name__ for kind in (*CERTAIN, *LIKELY)} == {
        "NoTargetTable",
        "MappingOverlap",
        "RowFilterIdle",
        "LocalInfileOff",
        "PacketTooSmall",
    }
