"""Extractors: write parts of a shard's name into columns of the target.

A rule may extract from the name of the shard's table or schema, or from the id of its source. The value consists
of the texts that the capture groups of the regular expression matched, concatenated, as in DM. The value depends on
the shard only, so no file and no event contains it: it is added where rows are converted to the target's columns.

If the expression does not match, DM writes an empty text. Then two shards could have the same key without any error,
so unshard raises an error that names the shard and the rule.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import TableId
from unshard.core.rules.pattern import compile_regex
from unshard.errors.config import ExtractionNotFound, PatternInvalid


class Origin(StrEnum):
    """The text that a value is extracted from; the values are those of DM's keys."""

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
    """The part of a rule that fills one column."""

    origin: Origin
    expression: re.Pattern[str]
    column: str

    def extract(self, source: str, table: TableId, rule: str) -> Extracted:
        """Return the value for one shard; raises ExtractionNotFound, which names `rule`."""
        text = {Origin.TABLE: table.name, Origin.SCHEMA: table.schema, Origin.SOURCE: source}[self.origin]
        found = self.expression.search(text)
        if found is None:
            raise ExtractionNotFound(rule, f"{source} {table}", f"{self.origin}", text, self.expression.pattern)
        return Extracted(self.column, "".join(group or "" for group in found.groups()))


def compile_extractor(origin: Origin, expression: str, column: str, case_sensitive: bool, whose: str) -> Extractor:
    """Compile one extractor; an error names `whose` as its place in the task file."""
    compiled = compile_regex(expression, case_sensitive, whose)
    if not compiled.groups:
        raise PatternInvalid(whose, expression, "it has no group in ( ), so it would extract nothing")
    return Extractor(origin, compiled, column)
