"""A shard whose structures do not have the target's names of columns yet (core.rows.columnnames adds them)."""

from dataclasses import dataclass, replace

from unshard.core.ddl.queue import EntryState, HeldFile, QueueEntry, ShardState
from unshard.core.model import Shard


@dataclass(frozen=True, slots=True)
class UnnamedShard:
    """A shard one of whose DDLs counts as another one, while its structures have its own names of columns only."""

    shard: Shard
    entries: tuple[QueueEntry, ...]
    """That DDL and all later ones of the shard, resolved or not."""
    held: tuple[HeldFile, ...]
    structure: str
    """Digest of the structure of the next row."""
    shard_uid: str = ""
    """Identifies the shard if another shard has its name by now."""

    @property
    def digests(self) -> set[str]:
        """The structures that `named` needs."""
        found = {digest for entry in self.entries for digest in (entry.before, entry.after)}
        return (found | {file.structure for file in self.held} | {self.structure}) - {""}

    def of(self, state: ShardState) -> ShardState:
        """Return the state of the shard with these entries, files and structure."""
        entries = {entry.seq: entry for entry in self.entries}
        queue = (entries.get(entry.seq, entry) for entry in state.queue)
        pending = tuple(entry for entry in queue if entry.state is EntryState.PENDING)
        return replace(state, queue=pending, held=self.held, structure=self.structure)
