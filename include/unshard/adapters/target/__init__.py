"""Everything that writes rows into the target's tables, in bounded statements of one transaction (in executors).

Rows are rendered as lines: LOAD DATA text, or parameters for MariaDB (`rendering`). They are sent from memory
(`sending`). The changes of a window become one fenced transaction per table (`apply`). The server's answer to every
statement is checked, because LOAD DATA LOCAL turns errors into warnings and continues.
"""

from unshard.adapters.target.apply import Committed, Slice, Slices, apply_changes, apply_slices
from unshard.adapters.target.deferring import write_or_defer
from unshard.adapters.target.fence import Fence
from unshard.adapters.target.rendering import lines_of
from unshard.adapters.target.sending import load_lines, load_rendered
from unshard.adapters.target.session import Writer, open_session
from unshard.adapters.target.takenkeys import Ledger
from unshard.adapters.target.targetrows import (
    Applied,
    Changes,
    Destination,
    Lines,
    Loaded,
    Mode,
    Origins,
    Patches,
    RowRemoval,
    Writes,
)
from unshard.adapters.target.writetrial import tried_writer, tried_writing

__all__ = [
    "Applied",
    "Changes",
    "Committed",
    "Destination",
    "Fence",
    "Ledger",
    "Lines",
    "Loaded",
    "Mode",
    "Origins",
    "Patches",
    "RowRemoval",
    "Slice",
    "Slices",
    "Writer",
    "Writes",
    "apply_changes",
    "apply_slices",
    "lines_of",
    "load_lines",
    "load_rendered",
    "open_session",
    "tried_writer",
    "tried_writing",
    "write_or_defer",
]
