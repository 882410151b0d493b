"""Expression filters: rows for which an SQL expression is true are omitted, as DM's `expression-filter` defines.

A server evaluates the expression. This module does not parse it: it only checks that the text is one expression that
cannot leave the parentheses around it.
"""

import re
from dataclasses import dataclass

from unshard.core.model import TableId

TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|(?P<out>;|--|\#|/\*)|(?P<word>[\w$]+)|(?P<other>\S)""",
    re.DOTALL,
)
QUOTES = ("'", '"', "`")
NOT_IN_EXPRESSIONS = frozenset({"SELECT", "INTO", "UNION", "TABLE"})


@dataclass(frozen=True, slots=True)
class RowFilter:
    """One rule for one table; an empty expression drops nothing."""

    name: str
    table: TableId
    insert: str = ""
    update_old: str = ""
    update_new: str = ""
    """With `update_old` both must be true."""
    delete: str = ""
    case_sensitive: bool = False

    @property
    def expressions(self) -> tuple[str, ...]:
        """The expressions that are not empty."""
        return tuple(filter(None, (self.insert, self.update_old, self.update_new, self.delete)))

    def matches(self, table: TableId) -> bool:
        """Whether the rule is for this table; both names are compared, not matched as patterns."""
        if self.case_sensitive:
            return self.table == table
        return (self.table.schema.lower(), self.table.name.lower()) == (table.schema.lower(), table.name.lower())


def unfit_expression(text: str) -> str | None:
    """Return what the text should be; None if it is valid in parentheses after WHERE."""
    depth = 0
    for token in TOKEN.finditer(text):
        other = token["other"] or ""
        if other in QUOTES:
            return "an SQL expression whose quotes are closed"
        depth += (other == "(") - (other == ")")
        if depth < 0 or token["out"] or (token["word"] or "").upper() in NOT_IN_EXPRESSIONS:
            return "one SQL expression over the columns of the row, without queries and comments"
    return None if text.strip() and not depth else "an SQL expression whose parentheses are closed"


def names_in(text: str) -> frozenset[str]:
    """Return all words and quoted names of an expression in lower case; they include the columns that it names."""
    tokens = [token.group() for token in TOKEN.finditer(text) if token["word"] or token.group().startswith("`")]
    return frozenset(token.strip("`").replace("``", "`").lower() for token in tokens)
