"""Extractors: what the name of a shard says, written into columns of the target.

A rule may extract from the shard's table, its schema and the id of its source; the value is what the
capture groups of the regular expression found, one behind the other, as in DM. It depends on the shard
alone, so no file and no event carries it: it is added where rows get the target's columns.

DM writes an empty text where the expression is not found. Two shards would then share a key in silence,
so here it is an error that names the shard and the rule.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import TableId
from unshard.core.pattern import compile_regex
from unshard.errors.config import ExtractionNotFound, PatternInvalid


class Origin(StrEnum):
    """What a value is extracted from; the words are those of DM's keys."""

    TABLE = "table"
    SCHEMA = "schema"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Extracted:
    """A value that all rows of a shard have in a column of the target."""

    column: str
    value: str


@dataclass(frozen=True, slots=True)
class Extractor:
    """How a rule fills one column."""

    origin: Origin
    expression: re.Pattern[str]
    column: str

    def extract(self, source: str, table: TableId, rule: str) -> Extracted:
        """Return the value for one shard; `rule` is named when the expression is not found."""
        text = {Origin.TABLE: table.name, Origin.SCHEMA: table.schema, Origin.SOURCE: source}[self.origin]
        found = self.expression.search(text)
        if found is None:
            raise ExtractionNotFound(rule, f"{source} {table}", f"{self.origin}", text, self.expression.pattern)
        return Extracted(self.column, "".join(group or "" for group in found.groups()))


def compile_extractor(origin: Origin, expression: str, column: str, case_sensitive: bool, whose: str) -> Extractor:
    """Compile one extractor; `whose` says in an error where it stands."""
    compiled = compile_regex(expression, case_sensitive, whose)
    if not compiled.groups:
        raise PatternInvalid(whose, expression, "it has no group in ( ), so it would extract nothing")
    return Extractor(origin, compiled, column)
