"""Expression filters: rows that an SQL expression is true for are left out, as DM's `expression-filter` says.

The expression is the server's: nothing here understands it. That it is one expression, and no way out of the
parentheses that it is put into, is all that is looked at.
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
        """All that are given."""
        return tuple(filter(None, (self.insert, self.update_old, self.update_new, self.delete)))

    def matches(self, table: TableId) -> bool:
        """Whether it is this very table."""
        if self.case_sensitive:
            return self.table == table
        return (self.table.schema.lower(), self.table.name.lower()) == (table.schema.lower(), table.name.lower())


def unfit_expression(text: str) -> str | None:
    """Return what the text should be, None if it may stand in parentheses behind WHERE."""
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
    """Return all words and quoted names of an expression in lower case: the columns that it names are among them."""
    tokens = [token.group() for token in TOKEN.finditer(text) if token["word"] or token.group().startswith("`")]
    return frozenset(token.strip("`").replace("``", "`").lower() for token in tokens)
