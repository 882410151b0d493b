"""Everything that writes rows into the target's tables, in bounded statements of one transaction (in executors).

Rows are rendered as lines: LOAD DATA text, or parameters for MariaDB (`rendering`). They are sent from memory
(`sending`). The changes of a window become one fenced transaction per table (`apply`). The server's answer to every
statement is checked, because LOAD DATA LOCAL turns errors into warnings and continues.
"""

from unshard.adapters.target.apply import apply_changes
from unshard.adapters.target.changes import Applied, Changes, Lines, Origins, Patches, Removal, Writes
from unshard.adapters.target.chunk.deferred import write_or_defer
from unshard.adapters.target.collisions import Ledger
from unshard.adapters.target.destination import Destination, Loaded, Mode
from unshard.adapters.target.fence import Fence
from unshard.adapters.target.rendering.lines import lines_of
from unshard.adapters.target.sending.load import load_lines, load_rendered
from unshard.adapters.target.session import Writer, open_session
from unshard.adapters.target.slices import Committed, Slice, Slices, apply_slices
from unshard.adapters.target.trial import tried_writer, tried_writing

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
    "Removal",
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
