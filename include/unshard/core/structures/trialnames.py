"""Names of constraints in a trial table, which no other trial table of the schema has at the same time.

MySQL's CHECK constraints, and the foreign keys of most servers, have names that are unique in a schema
(core.structures.constraintnames).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from unshard.core.model import Index, TableSchema
from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import MARIADB, tokenize
from unshard.core.structures.constraintnames import CHECK, constraint_names, edited, made_end, named_after
from unshard.core.structures.createtext import with_sorted_checks


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
        names = (each.token for each in constraint_names(tokens))
        edits = ((name.start, name.end, self.named.get(name.name.lower(), "")) for name in names)
        return edited(text, ((start, end, identifier(new)) for start, end, new in edits if new))

    def restored(self, schema: TableSchema) -> TableSchema:
        """Return the structure of the trial table with the names of the table."""
        indexes = (replace(index, name=self._own.get(index.name, index.name)) for index in schema.indexes)
        text = schema.create_sql
        for new, own in self._own.items():
            text = text.replace(identifier(new), identifier(own))
        return replace(schema, indexes=tuple(sorted(indexes, key=_order)), create_sql=with_sorted_checks(text))

    def message(self, text: str) -> str:
        """Return a message of the server with the names of the table."""
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


def _order(index: Index) -> tuple[bool, str]:
    return index.name != "PRIMARY", index.name.lower()
