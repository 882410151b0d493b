"""The clauses of a statement that say where and how a server stores a table.

Most are left out. They belong to the shard's server: on the target they would name its files, tablespaces and keys,
other tables, or another server with its password. What remains says the same about columns, keys and rows.

| clause | place |
|---|---|
| those of `CLAUSES`, with or without `=` | options of a table, a partition or a subpartition |
| `name = value` with a name that is not in `KEPT`, such as those of CONNECT, SPIDER and S3 | options of a table |
| ENGINE_ATTRIBUTE, SECONDARY_ENGINE_ATTRIBUTE, STORAGE DISK and MEMORY | everywhere |

A specification of an ALTER TABLE that has no other part becomes `NOTHING`. In CREATE TABLE a comma next to such a
clause is left out with it.

A table without transactions gets the engine InnoDB, because a target table must roll back. Options about the storage of
the old engine are left out, too: InnoDB refuses `ROW_FORMAT=FIXED`, `ROW_FORMAT=COMPRESSED` has another meaning there,
and TiDB refuses options of Aria. InnoDB ignores all others.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from unshard.core.model import TableSchema, lacks_transactions
from unshard.core.sql.tokens import Edit, Token, TokenKind, begins_at, edited
from unshard.core.sql.words import TABLE_OPTIONS, heads_of, words_of
from unshard.core.structures.parsedtable import parsed

NOTHING = "ALGORITHM=DEFAULT"
"""A specification of ALTER TABLE that every server accepts and that changes nothing."""
CLAUSES = heads_of("""
    DATA DIRECTORY, INDEX DIRECTORY, AUTOEXTEND_SIZE, CONNECTION, ENCRYPTED, ENCRYPTION, ENCRYPTION_KEY_ID,
    ENGINE_ATTRIBUTE, INSERT_METHOD, NODEGROUP, PASSWORD, SECONDARY_ENGINE, SECONDARY_ENGINE_ATTRIBUTE, TABLESPACE,
    UNION
""")
OF_COLUMNS = (("ENGINE_ATTRIBUTE",), ("SECONDARY_ENGINE_ATTRIBUTE",))
KEPT = (TABLE_OPTIONS - {words[0] for words in CLAUSES}) | words_of("""
    ALGORITHM LOCK POLICY PRE_SPLIT_REGIONS RENAME SEQUENCE SET TTL TTL_ENABLE TTL_JOB_INTERVAL
""")
STORED_ON = ("DISK", "MEMORY")
SPIDER = "SPIDER"
"""This engine has the address and the password of another server in the comment of a table."""
PASSWORD_OF_SPIDER = re.compile(r"\bpassword\s*\\?[\"']", re.IGNORECASE)

ENGINE = "InnoDB"
STORAGE = heads_of("""
    ROW_FORMAT, PAGE_CHECKSUM, TRANSACTIONAL, KEY_BLOCK_SIZE, INSERT_METHOD, UNION, DATA DIRECTORY, INDEX DIRECTORY
""")


@dataclass(frozen=True, slots=True)
class StorageClause:
    """A clause: its first token and the one after its last, and its name."""

    begin: int
    end: int
    name: str


def without_storage(text: str, tokens: Sequence[Token]) -> tuple[str, tuple[str, ...]]:
    """Return the text without such clauses, and their names in order."""
    begin, is_alter = _after_name(tokens)
    found = [*_clauses(tokens, begin, is_alter=is_alter)] if begin else []
    for start, end, instead in reversed([*_edits(tokens, found, begin, is_alter=is_alter)]):
        text = text[:start].rstrip() + (f" {instead} " if instead else " ") + text[end:].lstrip()
    return text.strip() if found else text, tuple(dict.fromkeys(clause.name for clause in found))


@lru_cache(256)
def with_transactions(create_sql: str) -> str:
    """Return the text of the same table with the engine InnoDB if its own engine has no transactions."""
    if not lacks_transactions(create_sql):
        return create_sql
    table = parsed(create_sql)
    return edited(table.text, _to_innodb(table.tokens[table.end :]))


def with_engine(schema: TableSchema, engine: str) -> TableSchema:
    """Return the structure with this engine; as it is if the name is empty."""
    if not engine:
        return schema
    table = parsed(schema.create_sql)
    name = next(_names_of_engines(table.tokens[table.end :]), None)
    return replace(schema, create_sql=edited(table.text, [(name.start, name.end, engine)])) if name else schema


def _names_of_engines(tokens: Sequence[Token]) -> Iterator[Token]:
    yield from (tokens[at + 2] for at in range(len(tokens)) if begins_at(tokens, at, "ENGINE", "="))


def _to_innodb(tokens: Sequence[Token]) -> Iterator[Edit]:
    yield from ((name.start, name.end, ENGINE) for name in _names_of_engines(tokens))
    for words in STORAGE:
        for position in range(len(tokens)):
            if begins_at(tokens, position, *words, "="):
                end = _end_of_value(tokens, position + len(words))
                yield tokens[position - 1].end, tokens[end - 1].end, ""


def _after_name(tokens: Sequence[Token]) -> tuple[int, bool]:
    """Return the position after the name of a table that is created or altered, and whether it is altered; else 0."""
    words = [token.word for token in tokens[:8]]
    is_alter = words[:1] == ["ALTER"]
    if (not is_alter and words[:1] != ["CREATE"]) or not {"TABLE", "INDEX"} & {*words[:5]}:
        return 0, False
    if "TABLE" not in words[:5]:
        return 1, False
    position = words.index("TABLE") + 1
    while position < len(tokens) and tokens[position].word in ("IF", "NOT", "EXISTS"):
        position += 1
    position += 3 if begins_at(tokens, position + 1, ".") else 1
    if is_alter:
        position += 2 * begins_at(tokens, position, "WAIT") + begins_at(tokens, position, "NOWAIT")
    return position, is_alter


def _clauses(tokens: Sequence[Token], begin: int, *, is_alter: bool) -> Iterator[StorageClause]:
    context, position = _Context(tokens, begin, is_alter), begin
    while position < len(tokens):
        context.at(position)
        found = _clause(tokens, position, context)
        if found:
            yield found
        position = found.end if found else position + 1


class _Context:
    """Whether a position is among options: of a created table, in a specification of options, or of partitions."""

    def __init__(self, tokens: Sequence[Token], begin: int, is_alter: bool) -> None:
        self.tokens, self.is_alter = tokens, is_alter
        self.depth, self.is_option, self.is_partition = 0, False, False
        self.columns = not is_alter and begin < len(tokens) and tokens[begin].word == "("
        self.is_first = True
        self.has_address = any(token.name.upper() == SPIDER for token in tokens)

    def clauses(self, position: int) -> Sequence[tuple[str, ...]]:
        """Return the first words of the clauses that may begin here."""
        if not (self.is_option or self.is_partition):
            return OF_COLUMNS
        # An ALTER TABLE does not name the engine of the table.
        value = " ".join(token.raw for token in self.tokens[position + 1 : position + 3])
        return (*CLAUSES, ("COMMENT",)) if self.has_address or PASSWORD_OF_SPIDER.search(value) else CLAUSES

    def at(self, position: int) -> None:
        word = self.tokens[position].word
        if self.is_first:
            words = [token.word for token in self.tokens[position : position + 2]]
            begins = not self.is_alter or words[0] in TABLE_OPTIONS | {"UNION"} or words[1:] == ["="]
            self.is_option, self.is_partition = not self.columns and begins, False
        self.is_first = self.depth == 0 and word == "," and self.is_alter
        self.depth += (word == "(") - (word == ")")
        if self.depth == 0 and word == ")" and self.columns:
            self.columns, self.is_option = False, True
        self.is_partition |= not self.columns and word in ("PARTITION", "PARTITIONS", "SUBPARTITION")
        if self.depth == 0 and word in ("AS", "SELECT"):
            self.is_option = False


def _clause(tokens: Sequence[Token], position: int, context: _Context) -> StorageClause | None:
    if tokens[position].word == "STORAGE":
        last = position + 1 + _is_word(tokens, position + 1, "=")
        return StorageClause(position, last + 1, "STORAGE") if _is_word(tokens, last, *STORED_ON) else None
    for words in context.clauses(position):
        if begins_at(tokens, position, *words):
            end = _end_of_value(tokens, position + len(words))
            return StorageClause(position, end, " ".join(words)) if end else None
    is_unknown = (
        tokens[position].kind in (TokenKind.WORD, TokenKind.QUOTED) and tokens[position].name.upper() not in KEPT
    )
    if context.is_option and not context.is_partition and context.depth == 0 and is_unknown:
        end = _end_of_value(tokens, position + 1) if _is_word(tokens, position + 1, "=") else 0
        return StorageClause(position, end, tokens[position].name.upper()) if end else None
    return None


def _is_word(tokens: Sequence[Token], position: int, *words: str) -> bool:
    return position < len(tokens) and tokens[position].word in words


def _end_of_value(tokens: Sequence[Token], position: int) -> int:
    """Return the position after a value, with or without an equals sign; 0 if no value follows."""
    position += _is_word(tokens, position, "=")
    if position >= len(tokens):
        return 0
    if tokens[position].word == "(":
        return next((n + 1 for n in range(position, len(tokens)) if tokens[n].word == ")"), 0)
    is_value = tokens[position].kind is not TokenKind.OTHER or tokens[position].raw[:1].isdigit()
    return position + 1 if is_value else 0


def _edits(tokens: Sequence[Token], found: Sequence[StorageClause], begin: int, *, is_alter: bool) -> Iterator[Edit]:
    """Yield the spans to replace: a run of clauses that is a whole specification becomes `NOTHING`."""
    commas = frozenset[int]() if is_alter else _commas_of_options(tokens)
    runs: list[tuple[int, int]] = []
    for clause in found:
        last = runs[-1][1] if runs else -1
        is_next = clause.begin == last + (last in commas)
        runs.append((runs.pop()[0] if is_next else clause.begin, clause.end))
    for first, last in runs:
        begins = first == begin or tokens[first - 1].word == ","
        ends = last == len(tokens) or tokens[last].word == ","
        before = first - 1 in commas
        start, end = tokens[first - before].start, tokens[last - 1 + (last in commas and not before)].end
        yield start, end, NOTHING if is_alter and begins and ends else ""


def _commas_of_options(tokens: Sequence[Token]) -> frozenset[int]:
    """Return the positions of commas outside of parentheses: those between options of a created table."""
    depths = accumulate((token.word == "(") - (token.word == ")") for token in tokens)
    return frozenset(at for at, depth in enumerate(depths) if depth == 0 and tokens[at].word == ",")
