"""Leaves out the clauses of a statement that say where and how a server stores a table.

They belong to the shard's server: on the target they would name its files, tablespaces and keys, other tables, or
another server with its password. What remains says the same about columns, keys and rows.

| clause | place |
|---|---|
| those of `CLAUSES`, with or without `=` | options of a table, a partition or a subpartition |
| `name = value` with a name that is not in `KEPT`, such as those of CONNECT, SPIDER and S3 | options of a table |
| ENGINE_ATTRIBUTE, SECONDARY_ENGINE_ATTRIBUTE, STORAGE DISK and MEMORY | everywhere |

A specification of an ALTER TABLE that has no other part becomes `NOTHING`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unshard.core.sql.tokens import Token, TokenKind
from unshard.core.sql.words import TABLE_OPTIONS, words_of

NOTHING = "ALGORITHM=DEFAULT"
"""A specification of ALTER TABLE that every server accepts and that changes nothing."""
CLAUSES = (
    ("DATA", "DIRECTORY"),
    ("INDEX", "DIRECTORY"),
    *(
        (word,)
        for word in words_of("""
        AUTOEXTEND_SIZE CONNECTION ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE INSERT_METHOD NODEGROUP
        PASSWORD SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE TABLESPACE UNION
    """)
    ),
)
OF_COLUMNS = (("ENGINE_ATTRIBUTE",), ("SECONDARY_ENGINE_ATTRIBUTE",))
KEPT = (TABLE_OPTIONS - {words[0] for words in CLAUSES}) | words_of("""
    ALGORITHM LOCK POLICY PRE_SPLIT_REGIONS RENAME SEQUENCE SET TTL TTL_ENABLE TTL_JOB_INTERVAL
""")
STORED_ON = ("DISK", "MEMORY")
SPIDER = "SPIDER"
"""This engine has the address and the password of another server in the comment of a table."""


@dataclass(frozen=True, slots=True)
class Clause:
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
    position += 3 if [token.word for token in tokens[position + 1 : position + 2]] == ["."] else 1
    if is_alter and [token.word for token in tokens[position : position + 1]] == ["WAIT"]:
        position += 2
    return position, is_alter


def _clauses(tokens: Sequence[Token], begin: int, *, is_alter: bool) -> Iterator[Clause]:
    """Yield the clauses in order."""
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

    def at(self, position: int) -> None:
        word = self.tokens[position].word
        if self.is_first:
            self.is_option, self.is_partition = self._begins_options(position), False
        self.is_first = self.depth == 0 and word == "," and self.is_alter
        self.depth += (word == "(") - (word == ")")
        if self.depth == 0 and word == ")" and self.columns:
            self.columns, self.is_option = False, True
        self.is_partition |= not self.columns and word in ("PARTITION", "PARTITIONS", "SUBPARTITION")
        if self.depth == 0 and word in ("AS", "SELECT"):
            self.is_option = False

    def _begins_options(self, position: int) -> bool:
        words = [token.word for token in self.tokens[position : position + 2]]
        return not self.columns and (not self.is_alter or words[0] in TABLE_OPTIONS | {"UNION"} or words[1:] == ["="])


def _clause(tokens: Sequence[Token], position: int, context: _Context) -> Clause | None:
    """Return the clause that begins at a position."""
    if tokens[position].word == "STORAGE":
        last = position + 1 + _is_word(tokens, position + 1, "=")
        return Clause(position, last + 1, "STORAGE") if _is_word(tokens, last, *STORED_ON) else None
    is_free = context.is_option or context.is_partition
    for words in _spider(tokens, CLAUSES) if is_free else OF_COLUMNS:
        if tuple(token.word for token in tokens[position : position + len(words)]) == words:
            end = _end_of_value(tokens, position + len(words))
            return Clause(position, end, " ".join(words)) if end else None
    is_unknown = (
        tokens[position].kind in (TokenKind.WORD, TokenKind.QUOTED) and tokens[position].name.upper() not in KEPT
    )
    if context.is_option and not context.is_partition and context.depth == 0 and is_unknown:
        end = _end_of_value(tokens, position + 1) if _is_word(tokens, position + 1, "=") else 0
        return Clause(position, end, tokens[position].name.upper()) if end else None
    return None


def _spider(tokens: Sequence[Token], clauses: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    return (*clauses, ("COMMENT",)) if any(token.name.upper() == SPIDER for token in tokens) else clauses


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


def _edits(
    tokens: Sequence[Token], found: Sequence[Clause], begin: int, *, is_alter: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield the spans to replace: a run of clauses that is a whole specification becomes `NOTHING`."""
    runs: list[tuple[int, int]] = []
    for clause in found:
        if runs and runs[-1][1] == clause.begin:
            runs[-1] = runs[-1][0], clause.end
        else:
            runs.append((clause.begin, clause.end))
    for first, last in runs:
        begins = first == begin or tokens[first - 1].word == ","
        ends = last == len(tokens) or tokens[last].word == ","
        yield tokens[first].start, tokens[last - 1].end, NOTHING if is_alter and begins and ends else ""
