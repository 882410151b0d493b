"""The target's tables: everything that writes rows into them, in bounded statements of one transaction.

Rows travel as lines of LOAD DATA text (`lines`), are sent from memory (`load`), and the changes of a
window become one fenced transaction per table (`apply`). What the server says about every single
statement is checked, because LOAD DATA LOCAL turns errors into warnings and goes on.
"""

from unshard.adapters.target.apply import apply_changes
from unshard.adapters.target.changes import Applied, Changes, Lines, Patches, Removal, Writes
from unshard.adapters.target.collisions import Ledger
from unshard.adapters.target.destination import Destination, Loaded, Mode
from unshard.adapters.target.fence import Fence
from unshard.adapters.target.leaving import write_or_leave
from unshard.adapters.target.lines import lines_of
from unshard.adapters.target.load import load_lines, load_text
from unshard.adapters.target.retrying import in_sessions
from unshard.adapters.target.session import LoadData, Writer, open_session
from unshard.adapters.target.slices import Slice, apply_slices
from unshard.adapters.target.trial import tried_writer

__all__ = [
    "Applied",
    "Changes",
    "Destination",
    "Fence",
    "Ledger",
    "Lines",
    "LoadData",
    "Loaded",
    "Mode",
    "Patches",
    "Removal",
    "Slice",
    "Writer",
    "Writes",
    "apply_changes",
    "apply_slices",
    "in_sessions",
    "lines_of",
    "load_lines",
    "load_text",
    "open_session",
    "tried_writer",
    "write_or_leave",
]
