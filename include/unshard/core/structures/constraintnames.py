"""Names of CHECK constraints and foreign keys.

A server makes the name of a constraint without one from the name of the table (`t_1_chk_2`, `t_1_ibfk_1`), and renames
it with the table. So the text of a structure has `*_chk_2`, and a statement for another table has that table's name.

A name that a user chose stays, unless another table of the target's schema has it. Some servers keep these names unique
in a schema, and the shards of the two tables lie in different schemas. Then the name of the table is put in front.

| the statement for the target      | the name                                                                   |
|-----------------------------------|----------------------------------------------------------------------------|
| defines a constraint              | the same, or `<table>_<name>` if another table of the schema has the name  |
| drops or alters a constraint      | the one of these two that the table has                                    |
| DROP CONSTRAINT, of a foreign key | the same, as DROP FOREIGN KEY, because stored structures have none         |
| DROP CONSTRAINT, of nothing there | the statement does nothing: a target may have no foreign keys              |

In a trial table, constraints have names that no other trial table of the schema has at the same time (`TrialNames`).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256

from unshard.core.model import TableSchema
from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import MARIADB, Edit, Token, TokenKind, edited, tokenize
from unshard.core.structures.parsedtable import with_sorted_checks
from unshard.core.structures.storageclauses import NOTHING

OWN = "*"
"""In the text of a structure, in place of the name of the table in a name that the server has made."""
MADE = re.compile(r"_(?:chk|ibfk)_\d+\Z", re.IGNORECASE)
CHECK, FOREIGN = "CHECK", "FOREIGN"
HEADS = {"CONSTRAINT": "", CHECK: CHECK, FOREIGN: FOREIGN}
"""The words before a name, with the kind that they say."""
DEFINES = {CHECK: CHECK, FOREIGN: FOREIGN, "REFERENCES": FOREIGN}
"""The words after a name that is defined."""
CHANGES = frozenset({"DROP", "ALTER"})
CONDITION = frozenset({"IF", "NOT", "EXISTS"})
PASSED_OVER = {"CONSTRAINT": CONDITION, CHECK: CONDITION, FOREIGN: CONDITION | {"KEY"}}
NO_NAMES = frozenset({*DEFINES, "UNIQUE", "PRIMARY"})
WORDS = re.compile(r"\b(?:CONSTRAINT|CHECK|FOREIGN)\b", re.IGNORECASE)
LONGEST = 64


@dataclass(frozen=True, slots=True)
class ConstraintName:
    """The name of a constraint in a statement; names of unique keys are left out."""

    token: Token
    kind: str
    """CHECK or FOREIGN; empty for DROP CONSTRAINT and ALTER CONSTRAINT, which may be about any kind."""
    change: str = ""
    """DROP or ALTER; empty if the statement defines the constraint."""
    start: int = 0
    head: Token | None = None

    @property
    def drops_any(self) -> bool:
        return self.change == "DROP" and not self.kind


@dataclass(frozen=True, slots=True)
class ConstraintsThere:
    """The names of the constraints of a table, and those that other tables of its schema have; all in lower case."""

    checks: frozenset[str] = frozenset()
    foreign_keys: frozenset[str] = frozenset()
    unique_keys: frozenset[str] = frozenset()
    taken: frozenset[tuple[str, str]] = frozenset()
    """Kind and name; only of kinds whose names are unique in a schema."""

    def of(self, kind: str) -> frozenset[str]:
        kinds = {CHECK: self.checks, FOREIGN: self.foreign_keys}
        return kinds.get(kind, self.checks | self.foreign_keys | self.unique_keys)


def constraint_names(tokens: Sequence[Token]) -> Iterator[ConstraintName]:
    """Yield the names of CHECK constraints and foreign keys in a statement."""
    for position, token in enumerate(tokens):
        if token.word not in HEADS:
            continue
        verb = tokens[position - 1] if position else token
        rest = [each for each in tokens[position + 1 : position + 7] if each.word not in PASSED_OVER[token.word]]
        if not rest or rest[0].kind not in (TokenKind.QUOTED, TokenKind.WORD) or rest[0].word in NO_NAMES:
            continue
        following = rest[1].word if len(rest) > 1 else ""
        if verb.word in CHANGES:
            yield ConstraintName(rest[0], HEADS[token.word], verb.word, verb.start, token)
        elif token.word == "CONSTRAINT" and following in DEFINES:
            yield ConstraintName(rest[0], DEFINES[following])


def made_end(name: str, table: str) -> str:
    """Return what follows the name of the table in a name that the server has made from it; else nothing."""
    found = MADE.search(name)
    return found[0].lower() if found and name[: found.start()].lower() == table.lower() else ""


def named_after(text: str, table: str) -> str:
    """Return the text of a structure, or of a statement that is made of it, with the name of the table."""
    return text.replace(f"CONSTRAINT `{OWN}_chk_", f"CONSTRAINT {identifier(table)[:-1]}_chk_")


def checks_of(create_sql: str, table: str) -> tuple[str, ...]:
    """Return the names of the CHECK constraints of a table in the order in which MySQL shows them."""
    if " CHECK (" not in create_sql:
        return ()
    found = constraint_names(tokenize(named_after(create_sql, table), 0, MARIADB)[1])
    return tuple(sorted((each.token.name for each in found if each.kind == CHECK), key=str.lower))


def own_name(table: str, name: str) -> str:
    """Return the name of a constraint in a schema in which another table has the name."""
    found = f"{table}_{name}"
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 13]}_{sha256(found.encode()).hexdigest()[:12]}"


def names_constraints(text: str, sql_mode: int) -> bool:
    """Whether a statement names a constraint."""
    return bool(WORDS.search(text)) and any(constraint_names(tokenize(text, sql_mode, MARIADB)[1]))


def for_table(text: str, sql_mode: int, table: str, there: ConstraintsThere) -> str:
    """Return a statement about a table with the names that its constraints have, or get, in its schema."""
    text, tokens = tokenize(text, sql_mode, MARIADB)
    return edited(text, (edit for each in constraint_names(tokens) for edit in _edits(each, table, there)))


def without_absent(text: str, sql_mode: int, there: Collection[str]) -> str:
    """Return a statement without each DROP CONSTRAINT of a name that is not there: that of a foreign key."""
    text, tokens = tokenize(text, sql_mode, MARIADB)
    gone = [each for each in constraint_names(tokens) if each.drops_any and each.token.name.lower() not in there]
    return edited(text, ((each.start, each.token.end, NOTHING) for each in gone))


@dataclass(frozen=True)
class TrialNames:
    """The names of the constraints of a table in its trial table."""

    table: str
    trial: str
    named: Mapping[str, str] = field(default_factory=dict)
    """Those in the trial table, by the names in lower case."""
    spelled: Mapping[str, str] = field(default_factory=dict)
    """The names as they are written, by the names in lower case."""

    def put_in(self, text: str, sql_mode: int = 0) -> str:
        if not self.named:
            return text
        text, tokens = tokenize(text, sql_mode, MARIADB)
        names = (each.token for each in constraint_names(tokens))
        edits = ((name.start, name.end, self.named.get(name.name.lower(), "")) for name in names)
        return edited(text, ((start, end, identifier(new)) for start, end, new in edits if new))

    def restored(self, schema: TableSchema) -> TableSchema:
        indexes = (replace(index, name=self._own.get(index.name, index.name)) for index in schema.indexes)
        text = schema.create_sql
        for new, own in self._own.items():
            text = text.replace(identifier(new), identifier(own))
        return replace(
            schema,
            indexes=tuple(sorted(indexes, key=lambda index: (index.name != "PRIMARY", index.name.lower()))),
            create_sql=with_sorted_checks(text),
        )

    def message(self, text: str) -> str:
        for new, own in {**self._own, f"{self.trial}_chk_": f"{self.table}_chk_"}.items():
            text = text.replace(new, own)
        return text

    @cached_property
    def _own(self) -> dict[str, str]:
        return {new: self.spelled[name] for name, new in self.named.items()}


def trial_names(table: str, trial: str, *statements: tuple[str, int]) -> TrialNames:
    """Return the names for the constraints that these statements define, each with its sql_mode.

    The name of a CHECK that the server has made from the name of the table is that of the trial table already.
    """
    spelled: dict[str, str] = {}
    for text, sql_mode in statements:
        if "CONSTRAINT" in text.upper():
            for each in constraint_names(tokenize(named_after(text, trial), sql_mode, MARIADB)[1]):
                name, end = each.token.name, made_end(each.token.name, trial)
                if not each.change and not (end and each.kind == CHECK):
                    spelled.setdefault(name.lower(), table + end if end else name)
    named = {name: f"{trial}_{number}_" for number, name in enumerate(spelled, 1)}
    return TrialNames(table, trial, named, spelled)


def _edits(each: ConstraintName, table: str, there: ConstraintsThere) -> Iterator[Edit]:
    name = new = each.token.name
    if not each.change:
        new = own_name(table, name) if (each.kind, name.lower()) in there.taken else name
    else:
        found = next((one for one in (name, own_name(table, name)) if one.lower() in there.of(each.kind)), "")
        new = found or name
        if each.drops_any and each.head is not None:
            if found.lower() in there.foreign_keys or (not found and "_ibfk_" in made_end(name, table)):
                yield each.head.start, each.head.end, "FOREIGN KEY"
            elif not found:
                yield each.start, each.token.end, NOTHING
                return
    if new != name:
        yield each.token.start, each.token.end, identifier(new)
