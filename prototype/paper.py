"""The tables on paper of the unit tests, with the options, partitions and inline keys that the cases need."""

import re
from dataclasses import dataclass, replace

from tests.unit.join import paper
from tests.unit.join.paper import PaperColumn, PaperTable
from unshard.core.join.difference import Target
from unshard.core.model import TableSchema


@dataclass
class Paper(PaperTable):
    """A table with a text after its columns."""

    rest: str = ""

    @property
    def structure(self) -> TableSchema:
        found = PaperTable.structure.fget(self)  # type: ignore[attr-defined]
        return replace(found, create_sql=f"{found.create_sql}{self.rest}")


paper.PaperTable = Paper  # type: ignore[misc]
_define = paper._define


def _define_with_key(table: PaperTable, spec: paper.TokenCursor, at: int) -> None:
    name, text = spec.tokens[spec.position].name, spec.text[spec.tokens[spec.position].start : spec.tokens[-1].end]
    _define(table, spec, at)
    if re.search(r"\bUNIQUE\b", text, re.IGNORECASE):
        table.indexes[name] = "UNIQUE", (f"`{name}`",)


def _default(table: Paper, spec: paper.TokenCursor) -> None:
    words = [token.name for token in spec.tokens]
    table.charset = words[words.index("SET") + 1]
    table.collation = words[words.index("COLLATE") + 1] if "COLLATE" in words else table.collation


def _comment(table: Paper, spec: paper.TokenCursor) -> None:
    table.rest = re.sub(r" COMMENT='\w*'", "", table.rest) + f" COMMENT='{spec.tokens[-1].name}'"


_drop = paper._drop


def _drop_any(table: Paper, spec: paper.TokenCursor) -> None:
    if spec.tokens[1].word == "PARTITION":
        name = spec.tokens[2].name
        table.rest = re.sub(rf",? ?PARTITION {name} VALUES LESS THAN \(\d+\)", "", table.rest)
    else:
        _drop(table, spec)


def _alter_column(table: Paper, spec: paper.TokenCursor) -> None:
    """`ALTER c SET DEFAULT n`."""
    words = [token.name for token in spec.tokens]
    at = paper._place(table, words[2] if words[1].upper() == "COLUMN" else words[1])
    table.columns[at] = replace(table.columns[at], default=words[-1])


paper._define = _define_with_key
paper._drop = _drop_any
paper.DO |= {"DEFAULT": _default, "COMMENT": _comment, "DROP": _drop_any, "ALTER": _alter_column}
_options = paper.DO["ENGINE"]
_create = paper.create


def create(sql: str) -> Paper:
    sql = re.sub(r"\bVIRTUAL\b|\bSTORED\b", "STORED", sql)
    head, _, partitions = sql.partition(" PARTITION BY")
    table = _create(head)
    assert isinstance(table, Paper)
    table.rest = f" PARTITION BY{partitions}" if partitions else ""
    return table


def alter(before: PaperTable, sql: str) -> PaperTable:
    """Return the table after ALTER TABLE; raises what a server refuses."""
    return paper.alter(before, sql)


def of(target: Target) -> Paper:
    """Return a target as a table on paper."""
    columns = []
    for id, definition in target.table.columns.items():
        assert definition is not None
        charset = getattr(definition.type, "charset", None) or None
        collation = "utf8mb4_general_ci" if charset else None
        default = definition.default if isinstance(definition.default, str) and definition.default else None
        columns.append(
            PaperColumn(target.names[id], str(definition.type), definition.nullable, default, charset, collation)
        )
    return Paper(columns)
