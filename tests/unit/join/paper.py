"""Tables on paper: a small MariaDB that understands the DDL of these tests and shows the structure as a server does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from unshard.core.ddl.statement import TokenCursor, alter_specs
from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql.tokens import MARIADB, TokenKind, tokenize
from unshard.core.structures.parsedtable import items

WIDTHS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
STARTS = (
    "NOT",
    "NULL",
    "DEFAULT",
    "PRIMARY",
    "UNIQUE",
    "FIRST",
    "AFTER",
    "AS",
    "CHARACTER",
    "COLLATE",
    "STORED",
    "GENERATED",
)
DEFAULT_COLLATIONS = {"utf8mb4": "utf8mb4_general_ci", "utf8mb3": "utf8mb3_general_ci", "latin1": "latin1_swedish_ci"}


@dataclass(frozen=True)
class PaperColumn:
    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    charset: str | None = None
    collation: str | None = None
    generated: str = ""

    @property
    def shown(self) -> str:
        words = [f"`{self.name}` {self.type}"]
        if self.charset:
            words.append(f"CHARACTER SET {self.charset} COLLATE {self.collation}")
        if self.generated:
            words.append(f"GENERATED ALWAYS AS ({self.generated}) STORED")
        elif not self.nullable:
            words.append("NOT NULL")
        if self.default is not None:
            words.append(f"DEFAULT {self.default}")
        elif self.nullable and not self.generated:
            words.append("DEFAULT NULL")
        return " ".join(words)

    @property
    def column(self) -> Column:
        kind = re.match(r"\w+", self.type)[0]
        default = None if self.generated else self.default or ("NULL" if self.nullable else None)
        extra = "stored generated" if self.generated else ""
        return Column(self.name, kind, self.type, self.nullable, self.charset, self.collation, default, extra)


@dataclass
class PaperTable:
    columns: list[PaperColumn] = field(default_factory=list)
    indexes: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Kind and parts by name."""
    checks: dict[str, str] = field(default_factory=dict)
    """Expressions by the name of the constraint; no row is compared with them."""
    charset: str = "utf8mb4"
    collation: str = "utf8mb4_general_ci"

    def copy(self) -> "PaperTable":
        return replace(self, columns=[*self.columns], indexes=dict(self.indexes), checks=dict(self.checks))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def structure(self) -> TableSchema:
        lines = [column.shown for column in self.columns]
        for name, (kind, parts) in sorted(self.indexes.items(), key=lambda item: (item[0] != "PRIMARY", item[0])):
            head = "PRIMARY KEY" if name == "PRIMARY" else f"{kind} KEY `{name}`".strip()
            lines.append(f"{head} ({','.join(parts)})")
        lines += [f"CONSTRAINT `{name}` CHECK ({expression})" for name, expression in sorted(self.checks.items())]
        body = ",\n  ".join(lines)
        text = f"CREATE TABLE `t` (\n  {body}\n) ENGINE=InnoDB DEFAULT CHARSET={self.charset} COLLATE={self.collation}"
        indexes = tuple(
            Index(name, tuple(re.findall(r"`(\w+)`", ",".join(parts))), kind == "UNIQUE" or name == "PRIMARY")
            for name, (kind, parts) in sorted(self.indexes.items(), key=lambda item: (item[0] != "PRIMARY", item[0]))
        )
        return TableSchema(tuple(column.column for column in self.columns), indexes, text, self.collation)


def create(sql: str) -> PaperTable:
    table = PaperTable()
    text, tokens = tokenize(sql, 0, MARIADB)
    options = text[text.rindex(")") :]
    if charset := re.search(r"(?:CHARSET|CHARACTER SET)[ =](\w+)", options, re.IGNORECASE):
        table.charset = "utf8mb3" if charset[1] == "utf8" else charset[1]
        table.collation = DEFAULT_COLLATIONS[table.charset]
    if collation := re.search(r"COLLATE[ =](\w+)", options, re.IGNORECASE):
        table.collation = collation[1].replace("utf8_", "utf8mb3_")
    for _, item in items(tokens):
        if item[0].word in ("PRIMARY", "UNIQUE", "INDEX", "KEY"):
            _index(table, TokenCursor(text, tuple(item), ""))
        else:
            _define(table, TokenCursor(text, tuple(item), ""), len(table.columns))
    return table


def alter(before: PaperTable, sql: str) -> PaperTable:
    """Return the table after ALTER TABLE; all clauses refer to the columns before it, as in MariaDB."""
    table = before.copy()
    text, tokens = tokenize(sql, 0, MARIADB)
    specs = alter_specs(text, tokens)
    for spec in (spec for word in ("DROP", "MODIFY", "CHANGE") for spec in specs if spec.peek() == word):
        DO[spec.peek()](table, spec)
    _rename(table, [spec for spec in specs if spec.peek() == "RENAME"])
    for spec in (spec for spec in specs if spec.position == 0 and spec.peek() != "RENAME"):
        DO[spec.peek()](table, spec)
    return table


def _rename(table: PaperTable, specs: Sequence[TokenCursor]) -> None:
    renamed = {}
    for spec in specs:
        spec.position += 2
        old = spec.name().name
        spec.eat("TO")
        _place(table, old)
        renamed[old] = spec.name().name
    table.columns = [replace(column, name=renamed.get(column.name, column.name)) for column in table.columns]
    for old, new in renamed.items():
        _rename_in_keys(table, old, f"\0{new}")
    for new in renamed.values():
        _rename_in_keys(table, f"\0{new}", new)


def _rename_in_keys(table: PaperTable, old: str, new: str) -> None:
    for name, (kind, parts) in table.indexes.items():
        table.indexes[name] = kind, tuple(part.replace(f"`{old}`", f"`{new}`") for part in parts)


def _place(table: PaperTable, name: str) -> int:
    """Return the number of a column; raises KeyError where a server refuses the statement."""
    return {column.name.lower(): at for at, column in enumerate(table.columns)}[name.lower()]


def _add(table: PaperTable, spec: TokenCursor) -> None:
    spec.eat("ADD")
    if spec.peek() in ("INDEX", "KEY", "UNIQUE", "PRIMARY"):
        _index(table, spec)
        return
    if spec.eat("CONSTRAINT"):
        name, text = spec.name().name, spec.text[spec.tokens[spec.position].start : spec.tokens[-1].end]
        table.checks[name] = _quoted(table, text[text.index("(") + 1 : text.rindex(")")])
        return
    spec.eat("COLUMN")
    if not spec.eat("("):
        _define(table, spec, len(table.columns))
        return
    inner = TokenCursor(spec.text, spec.tokens[spec.position - 1 :], "")
    for _, item in items(inner.tokens):
        _define(table, TokenCursor(spec.text, tuple(item), ""), len(table.columns))


def _drop(table: PaperTable, spec: TokenCursor) -> None:
    spec.eat("DROP")
    if spec.eat("PRIMARY", "KEY"):
        del table.indexes["PRIMARY"]
        return
    if spec.eat_any("INDEX", "KEY"):
        del table.indexes[spec.name().name]
        return
    if spec.eat("CONSTRAINT"):
        del table.checks[spec.name().name]
        return
    spec.eat("COLUMN")
    name = spec.name().name
    del table.columns[_place(table, name)]
    for index, (kind, parts) in list(table.indexes.items()):
        left = tuple(part for part in parts if not part.startswith(f"`{name}`"))
        if left:
            table.indexes[index] = kind, left
        else:
            del table.indexes[index]


def _modify(table: PaperTable, spec: TokenCursor) -> None:
    is_change = spec.eat("CHANGE")
    spec.position += not is_change
    spec.eat("COLUMN")
    at = _place(table, spec.tokens[spec.position].name)
    old = table.columns.pop(at)
    if is_change:
        spec.position += 1
        _rename_in_keys(table, old.name, spec.tokens[spec.position].name)
    _define(table, spec, at)


def _convert(table: PaperTable, spec: TokenCursor) -> None:
    words = [token.name for token in spec.tokens]
    table.charset = words[words.index("SET") + 1]
    table.collation = words[words.index("COLLATE") + 1] if "COLLATE" in words else DEFAULT_COLLATIONS[table.charset]
    table.columns = [
        replace(column, charset=table.charset, collation=table.collation) if column.charset else column
        for column in table.columns
    ]


def _option(_table: PaperTable, _spec: TokenCursor) -> None:
    """Change nothing that a structure has."""


DO = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _modify,
    "CONVERT": _convert,
    "ENGINE": _option,
    "FORCE": _option,
}


def _index(table: PaperTable, spec: TokenCursor) -> None:
    kind = "PRIMARY" if spec.eat("PRIMARY") else "UNIQUE" if spec.eat("UNIQUE") else ""
    spec.eat_any("INDEX", "KEY")
    name = "PRIMARY" if kind == "PRIMARY" else ""
    if not name and spec.peek() != "(":
        name = spec.name().name
    inside = [token.name for token in spec.tokens[spec.position :] if token.kind is not TokenKind.OTHER]
    table.indexes[name or inside[0]] = kind, tuple(f"`{each}`" for each in inside)


def _define(table: PaperTable, spec: TokenCursor, at: int) -> None:
    name = spec.name().name
    tokens = spec.tokens[spec.position :]
    words = [token.word for token in tokens]
    end = next((place for place, word in enumerate(words) if word in STARTS), len(tokens))
    kind = _type("".join(_separated(tokens[:end])).lower())
    rest = spec.text[tokens[end].start : tokens[-1].end] if end < len(tokens) else ""
    charset, collation = _charset(table, kind, rest)
    default = re.search(r"DEFAULT\s+(now\(\)|current_timestamp\(\)|'[^']*'|-?[\w.]+)", rest, re.IGNORECASE)
    value = default[1] if default and default[1].upper() != "NULL" else None
    value = "current_timestamp()" if value and value.lower() == "now()" else value
    generated = re.search(r"\bAS\s*\((.*)\)", rest, re.IGNORECASE)
    is_key = "PRIMARY KEY" in rest.upper() or f"`{name}`" in table.indexes.get("PRIMARY", ("", ()))[1]
    nullable = not is_key and "NOT NULL" not in rest.upper()
    expression = _quoted(table, generated[1].strip()) if generated else ""
    column = PaperColumn(name, kind, nullable or bool(generated), value, charset, collation, expression)
    if place := re.search(r"\bAFTER\s+(\w+)|\b(FIRST)\b", rest, re.IGNORECASE):
        at = 0 if place[2] else _place(table, place[1]) + 1
    table.columns.insert(at, column)
    if "PRIMARY KEY" in rest.upper():
        table.indexes["PRIMARY"] = "PRIMARY", (f"`{name}`",)


def _quoted(table: PaperTable, expression: str) -> str:
    for each in table.names:
        expression = re.sub(rf"(?<![`\w]){each}(?![`\w])", f"`{each}`", expression)
    return expression


def _separated(tokens: Sequence) -> list[str]:
    return [f" {token.raw}" if token.word in ("UNSIGNED", "ZEROFILL") else token.raw for token in tokens]


def _type(text: str) -> str:
    word = re.match(r"\w+", text)[0]
    if word in WIDTHS and "(" not in text:
        return text.replace(word, f"{word}({WIDTHS[word]['unsigned' in text]})", 1)
    return {"decimal": "decimal(10,0)"}.get(text, text)


def _charset(table: PaperTable, kind: str, rest: str) -> tuple[str | None, str | None]:
    if re.match(r"\w+", kind)[0] not in TEXTS:
        return None, None
    charset = re.search(r"CHARACTER SET (\w+)", rest, re.IGNORECASE)
    collation = re.search(r"COLLATE (\w+)", rest, re.IGNORECASE)
    if not charset:
        return table.charset, collation[1] if collation else table.collation
    name = "utf8mb3" if charset[1] == "utf8" else charset[1]
    return name, collation[1].replace("utf8_", "utf8mb3_") if collation else DEFAULT_COLLATIONS[name]
