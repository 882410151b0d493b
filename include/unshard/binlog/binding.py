"""Bind a TABLE_MAP event to the tracked structure of its shard; everything that both contain must agree.

So an unseen DDL ends in an error, and rows are never read with the wrong structure. The more metadata the server sends,
the more is compared. Physical types and their sizes are always compared.
"""

from collections.abc import Sequence

from unshard.binlog.metadata import Collations
from unshard.binlog.rowcode import RowReader, compile_reader
from unshard.binlog.tablemap import NUMERIC, TableMap, agrees, numbers_of
from unshard.binlog.tablemap import FieldType as F
from unshard.core.model import Column, TableSchema
from unshard.core.sql.charsets import charset_of
from unshard.core.structures.labels import encoded_labels, read_labels
from unshard.errors.rows import ColumnCountDiffers, ColumnTypeDiffers, UnsupportedColumn

_CHARACTERS = frozenset((F.STRING, F.VAR_STRING, F.VARCHAR, F.BLOB, F.VARCHAR_COMPRESSED, F.BLOB_COMPRESSED, F.VECTOR))
_LABELLED = frozenset((F.ENUM, F.SET))
_ALIASES = {"utf8": "utf8mb3", None: "binary"}


def bind_structure(table_map: TableMap, schema: TableSchema, shard: str, place: str) -> RowReader:
    """Return the reader of a table's rows; ValueError if the metadata contradict the columns of the same event."""
    if len(table_map.fields) != len(schema.columns):
        raise ColumnCountDiffers(shard, place, len(table_map.fields), len(schema.columns))
    for physical, column in zip(table_map.fields, schema.columns, strict=True):
        if physical.type not in F._value2member_map_:
            raise UnsupportedColumn(shard, column.name, column.column_type)
        if not agrees(physical, column):
            raise ColumnTypeDiffers(shard, column.name, place, str(physical), column.column_type)
    _Comparison(table_map, schema.columns, shard, place).run()
    return compile_reader(table_map.fields, schema.columns, shard)


class _Comparison:
    """The comparison of the metadata of one TABLE_MAP with the tracked columns."""

    def __init__(self, table_map: TableMap, columns: Sequence[Column], shard: str, place: str) -> None:
        self._metadata, self._columns = table_map.metadata, columns
        self._types = [physical.type for physical in table_map.fields]
        self._shard, self._place = shard, place

    def run(self) -> None:
        self._names()
        self._signs()
        self._dimensions()
        self._labels(self._metadata.enum_labels, F.ENUM)
        self._labels(self._metadata.set_labels, F.SET)
        self._charsets(self._metadata.charsets, self._character_columns())
        self._charsets(self._metadata.label_charsets, self._of(_LABELLED))

    def _of(self, types: frozenset[F]) -> list[Column]:
        return [column for kind, column in zip(self._types, self._columns, strict=True) if kind in types]

    def _differs(self, column: Column, found: str, tracked: str) -> ColumnTypeDiffers:
        return ColumnTypeDiffers(self._shard, column.name, self._place, found, tracked)

    def _names(self) -> None:
        if self._metadata.names:
            for name, column in zip(self._metadata.names, self._columns, strict=True):
                if name != (known := column.own_name or column.name):
                    raise self._differs(column, f"called {name}", f"called {known}")

    def _signs(self) -> None:
        # The last byte is padded; a server without metadata sends no signs.
        for unsigned, column in zip(self._metadata.unsigned, self._of(NUMERIC), strict=False):
            if unsigned != column.is_unsigned and column.data_type != "year":
                raise self._differs(column, "unsigned" if unsigned else "signed", column.column_type)

    def _dimensions(self) -> None:
        if self._metadata.dimensions:
            for found, column in zip(self._metadata.dimensions, self._of(frozenset((F.VECTOR,))), strict=True):
                if found != numbers_of(column.column_type)[0]:
                    raise self._differs(column, f"vector({found})", column.column_type)

    def _labels(self, labels: tuple[tuple[bytes, ...], ...], kind: F) -> None:
        if not labels:
            return
        for found, column in zip(labels, self._of(frozenset((kind,))), strict=True):
            as_utf8 = tuple(label.encode() for label in read_labels(column.column_type))
            if found not in (as_utf8, encoded_labels(column, self._shard)):
                shown = ",".join(label.decode("utf-8", "replace") for label in found)
                raise self._differs(column, f"{kind.name} of {shown}", column.column_type)

    def _character_columns(self) -> list[Column]:
        """Return the columns with a character set; MariaDB includes GEOMETRY, MySQL does not."""
        found, wider = self._of(_CHARACTERS), self._of(_CHARACTERS | {F.GEOMETRY})
        charsets = self._metadata.charsets
        if charsets is None or len(found) == len(wider):
            return found
        if charsets.default:
            # It is unknown which of the two lists the numbers refer to.
            return []
        return wider if len(charsets.ids) == len(wider) else found

    def _charsets(self, collations: Collations | None, columns: Sequence[Column]) -> None:
        if collations is None or not columns:
            return
        for collation, column in zip(collations.of(len(columns)), columns, strict=True):
            found = _charset(collation)
            tracked = _ALIASES.get(column.charset, column.charset)
            if found and found != tracked:
                raise self._differs(column, f"in character set {found}", f"{column.column_type} in {tracked}")


def _charset(collation: int) -> str:
    """Return the character set of a collation, empty for an unknown collation of a newer server."""
    try:
        return charset_of(collation)
    except KeyError:
        return ""
