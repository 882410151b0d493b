"""The state of a task in tables of the target: one value, a part for each kind of rows.

Everything conditional is conditional in SQL, so that a run that was taken over can change nothing.
"""

from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.aside import Aside
from unshard.adapters.meta.awaited import AwaitedRows
from unshard.adapters.meta.chunks import Chunks
from unshard.adapters.meta.collisions import Collisions
from unshard.adapters.meta.conditions import Conditions
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.defaults import Defaults
from unshard.adapters.meta.halts import Halts
from unshard.adapters.meta.lateindexes import LateIndexes
from unshard.adapters.meta.locks import Locks
from unshard.adapters.meta.online import Online
from unshard.adapters.meta.orders import Orders
from unshard.adapters.meta.prechecks import Prechecks
from unshard.adapters.meta.presence import Presence
from unshard.adapters.meta.rates import Rates
from unshard.adapters.meta.removal import Removal
from unshard.adapters.meta.rowerrors import RowErrorRecords
from unshard.adapters.meta.rules import RulesInForce
from unshard.adapters.meta.sources import Checkpoints, Sources
from unshard.adapters.meta.statementorders import StatementOrders
from unshard.adapters.meta.stops import Stops
from unshard.adapters.meta.structures import Structures
from unshard.adapters.meta.windows import Windows
from unshard.core.model import Server

__all__ = ["Meta"]


class Meta:
    """The meta tables of one task; may be used by several threads and after a fork."""

    def __init__(self, server: Server, schema: str, task: str) -> None:
        self._database = MetaDatabase(server, schema, task)
        self.task = task
        self.schema = schema
        self.sources = Sources(self._database)
        self.checkpoints = Checkpoints(self._database)
        self.structures = Structures(self._database)
        self.defaults = Defaults(self._database)
        self.aside = Aside(self._database)
        self.online = Online(self._database)
        self.chunks = Chunks(self._database)
        self.conditions = Conditions(self._database)
        self.rates = Rates(self._database)
        self.late_indexes = LateIndexes(self._database)
        self.collisions = Collisions(self._database)
        self.prechecks = Prechecks(self._database)
        self.windows = Windows(self._database)
        self.locks = Locks(self._database)
        self.orders = Orders(self._database)
        self.halts = Halts(self._database)
        self.rules = RulesInForce(self._database)
        self.presence = Presence(self._database)
        self.removal = Removal(self._database)
        self.awaited = AwaitedRows(self._database)
        self.row_errors = RowErrorRecords(self._database)
        self.stops = Stops(self._database)
        self.statement_orders = StatementOrders(self._database)

    def migrate(self) -> None:
        """Create or update the meta tables; idempotent, and safe in several processes at once."""
        self._database.migrate()

    def refuse_other_version(self) -> None:
        """Raise MetaTooNew or MetaTooOld if the tables are not those of this version."""
        self._database.refuse_other_version()

    def version(self) -> int:
        """Return the number of the last migration that the tables have had."""
        return self._database.version()

    def register(self, config_hash: str) -> None:
        """Record the task and the configuration that it runs with."""
        row = {"task": self.task, "config_hash": config_hash, "created_at": tables.NOW, "updated_at": tables.NOW}
        newer = {"config_hash": config_hash, "updated_at": tables.NOW}
        with self._database.transaction() as connection:
            connection.execute(insert(tables.task).values(row).on_duplicate_key_update(newer))

    def close(self) -> None:
        """Let go of what is open."""
        self.presence.close()
        self._database.close()
