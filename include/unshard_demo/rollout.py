"""The change of the shards in optimistic mode: a canary that goes forth and back, then the rollout over all shards.

It runs while rows are written, and waits only for states that it reads. Waits are proven in windows: the plans in the
meta tables say which rows a window held and which it wrote.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.config import Connections, Task
from unshard.core.join.states import State
from unshard.core.model import TableId
from unshard.core.structures.difference import differences
from unshard.units.begun import existing_meta
from unshard.units.ddl.differences import DifferenceView
from unshard.units.task.opendifferences import open_differences
from unshard_demo import shop
from unshard_demo.output import DemoFailed, figure, say
from unshard_demo.passages import WindowRecords, Windows, held_shards
from unshard_demo.servers import MariaDb

CANARY = shop.SHARDS[2]
HALF = len(shop.SHARDS) // 2
MOST_WINDOWS = 2
"""The window that reaches the DDL and the next one."""


@dataclass
class Rollout:
    """The canary and the rollout on the shards of a running task."""

    task: Task
    connections: Connections
    sources: Mapping[str, MariaDb]
    target: MariaDb
    writers: Sequence[shop.Writer]
    wait: Callable[[Callable[[], bool], str], None]
    """Returns when the condition is true; the second argument names it."""
    next_shard: Callable[[], None]
    """Lets some time pass between two shards."""
    halfway: Callable[[Sequence[DifferenceView]], None]
    """Is called with the open differences when half of the shards have the change."""
    figures: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Change the shards; return lines of the summary. Raises DemoFailed if a row waited longer than it may."""
        began = self._records().last()
        self.forth(began)
        self.back()
        self.prove_no_wait(began)
        self.all_shards()
        return self.figures

    def forth(self, began: Windows) -> None:
        """Change the canary only; its new rows reach the target."""
        say(f"canary: {shop.CANARY_DDL.format(table=CANARY.table)}")
        self._change(CANARY, shop.CANARY_DDL)
        taken = self._await_rows(began, 1)
        ((rows, length),) = self.target.run(
            f"SELECT COUNT(*), MAX(LENGTH(customer)) FROM shop.orders WHERE {shop.IN_APP}"
        )
        if not rows or int(str(length)) <= shop.OLD_LENGTH:
            raise DemoFailed(f"the target has {rows} new rows of {CANARY.table}, the longest name has {length} bytes")
        say(f"  its rows with the new column are in the target, after {taken} windows")
        self.figures.append(
            figure("rows of the canary took", taken, f"windows to the target; {MOST_WINDOWS} are allowed")
        )

    def back(self) -> None:
        """Take the canary's change back; the target loses what no shard needs any more."""
        say(f"the canary goes back: {shop.BACK_DDL.format(table=CANARY.table)}")
        began = self._records().last()
        shop.writer_of(self.writers, CANARY).change_back(CANARY)
        self._await_rows(began, 1)
        self.wait(lambda: not self.open(), "the target to go back")
        if found := self.structural_differences():
            raise DemoFailed(f"the target did not go back: {'; '.join(found)}")
        say("  the target has the structure of all shards again")

    def prove_no_wait(self, began: Windows) -> None:
        """Raise if a window since then held rows of another shard than the canary."""
        plans = self._records().plans(began)
        if held := {str(shard.table) for shard in held_shards(plans)} - {CANARY.table}:
            raise DemoFailed(f"rows of {', '.join(sorted(held))} waited for the DDL of {CANARY.table}")
        say(f"  none of the {len(plans)} windows with the canary held a row of another shard")
        self.figures.append(figure("rows of others waited", 0, f"windows, of {len(plans)} with the canary"))

    def all_shards(self) -> None:
        """Change one shard after the other."""
        say(f"rollout, one shard after the other: {shop.ROLLOUT_DDL.format(table='<shard>')}")
        began = self._records().last()
        for number, shard in enumerate(shop.SHARDS, 1):
            self._change(shard, shop.ROLLOUT_DDL)
            if number == HALF:
                self.wait(self._is_halfway, f"{HALF} of {len(shop.SHARDS)} shards to be followed")
                self.halfway(self.open())
            else:
                self.next_shard()
        taken = self._await_rows(began, len(shop.SHARDS))
        self.wait(lambda: not self.open(), "the differences to settle")
        say(f"  all shards have it; rows after it took {taken} windows at most")
        self.figures.append(figure("rows in the rollout took", taken, "windows to the target at most"))

    def open(self) -> tuple[DifferenceView, ...]:
        """Return the open differences, as `unshard locks` shows them."""
        with existing_meta(self.task, self.connections) as meta:
            return open_differences(self.task, meta, self.connections) if meta else ()

    def structural_differences(self) -> tuple[str, ...]:
        """Return the differences of the target from each shard."""
        with contextlib.closing(mysql.connect(self.target.server)) as connection:
            target = read_schema(connection, TableId("shop", "orders"))
        found: dict[str, None] = {}
        for shard in shop.SHARDS:
            with contextlib.closing(mysql.connect(self.sources[shard.source].server)) as connection:
                own = read_schema(connection, TableId(*shard.table.split(".")))
            found |= dict.fromkeys(f"{shard.table}: {text}" for text in differences(own, target))
        return tuple(found)

    def _is_halfway(self) -> bool:
        found = self.open()
        return bool(found) and all(view.state is State.OPEN and len(view.have) == HALF for view in found)

    def _await_rows(self, began: Windows, ddls: int) -> int:
        """Wait until rows after so many DDL are in the target; return how many windows they took at most."""
        records = self._records()

        def taken() -> list[int | None]:
            plans = records.plans(began)
            return [ddl.windows(plans) for ddl in records.ddls(began)]

        self.wait(lambda: len(found := taken()) >= ddls and None not in found, "rows after the DDL to be applied")
        most = max(windows for windows in taken() if windows is not None)
        if most > MOST_WINDOWS:
            raise DemoFailed(f"rows after a DDL took {most} windows to the target, {MOST_WINDOWS} are allowed")
        return most

    def _records(self) -> WindowRecords:
        return WindowRecords(self.target, self.task.meta_schema, self.task.name)

    def _change(self, shard: shop.DemoShard, ddl: str) -> None:
        shop.writer_of(self.writers, shard).change(shard, ddl, f"{shop.IN_APP}, {shop.LONG_NAME}")
