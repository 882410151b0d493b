"""Names of constraints in a trial table, which no other trial table of the schema has at the same time.

MySQL's CHECK constraints, and the foreign keys of most servers, have names that are unique in a schema. A constraint
without a name gets one from the server, made of the name of the table: `t_1_chk_2`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from unshard.core.model import Index, TableSchema
from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.structures.createtext import with_sorted_checks

DEFINES = frozenset({"CHECK", "FOREIGN", "REFERENCES"})
INDEXES = frozenset({"UNIQUE", "PRIMARY"})
CONDITION = frozenset({"IF", "NOT", "EXISTS"})
NO_NAME = DEFINES | INDEXES


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
        """Return a statement with the names of the trial table."""
        if not self.named:
            return text
        text, tokens = tokenize(text, sql_mode, MARIADB)
        for token, _ in reversed([*_constraints(tokens)]):
            if new := self.named.get(token.name.lower()):
                text = f"{text[: token.start]}{identifier(new)}{text[token.end :]}"
        return text

    def restored(self, schema: TableSchema) -> TableSchema:
        """Return the structure of the trial table with the names of the table."""
        indexes = (replace(index, name=self._own.get(index.name, index.name)) for index in schema.indexes)
        text = with_sorted_checks(self._replaced(schema.create_sql, identifier))
        return replace(schema, indexes=tuple(sorted(indexes, key=_order)), create_sql=text)

    def message(self, text: str) -> str:
        """Return a message of the server with the names of the table."""
        return self._replaced(text, str)

    def _replaced(self, text: str, quoted: Callable[[str], str]) -> str:
        for new, own in self._own.items():
            text = text.replace(quoted(new), quoted(own))
        made = re.escape(quoted(f"{self.trial}_chk_NUMBER")).replace("NUMBER", r"(\d+)")
        return re.sub(made, lambda found: quoted(f"{self.table}_chk_{found[1]}"), text)

    @cached_property
    def _own(self) -> dict[str, str]:
        return {new: self.spelled[name] for name, new in self.named.items()}


def trial_names(table: str, trial: str, *statements: tuple[str, int]) -> TrialNames:
    """Return the names for the constraints that these statements define, each with its sql_mode."""
    spelled: dict[str, str] = {}
    for text, sql_mode in statements:
        if "CONSTRAINT" in text.upper():
            for token, following in _constraints(tokenize(text, sql_mode, MARIADB)[1]):
                if following in DEFINES:
                    spelled.setdefault(token.name.lower(), token.name)
    named = {name: _new_name(own, number, table, trial) for number, (name, own) in enumerate(spelled.items(), 1)}
    return TrialNames(table, trial, named, spelled)


def _new_name(name: str, number: int, table: str, trial: str) -> str:
    """Return a unique name; one that a server has made stays one, so that the server continues its numbers."""
    made = re.fullmatch(rf"{re.escape(table)}(_chk_\d+)", name, re.IGNORECASE)
    return f"{trial}{made[1].lower()}" if made else f"{trial}_{number}_"


def _constraints(tokens: tuple[Token, ...]) -> Iterator[tuple[Token, str]]:
    """Yield the names of constraints, each with the word after it; those that are names of indexes are left out."""
    for position, token in enumerate(tokens):
        before = tokens[position - 1].word if position else ""
        if token.word != "CONSTRAINT" and not (token.word == "CHECK" and before in ("DROP", "ALTER")):
            continue
        rest = [each for each in tokens[position + 1 : position + 6] if each.word not in CONDITION]
        following = rest[1].word if len(rest) > 1 else ""
        is_name = bool(rest) and rest[0].kind in (TokenKind.QUOTED, TokenKind.WORD) and rest[0].word not in NO_NAME
        if is_name and following not in INDEXES:
            yield rest[0], following


def _order(index: Index) -> tuple[bool, str]:
    return index.name != "PRIMARY", index.name.lower()
