"""The condition of a dump (`where`), looked through where a target is compared with its shards.

Behind the dump every change of a row is applied, whatever the condition says. So a row of a shard for which it is true
is in the target: it was dumped, or has changed since. And a row of the target is one of its shard. Looked at through
the condition, both are the same, if it says the same of a row here and there.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from unshard.core.rowfilter import names_in


@dataclass(frozen=True, slots=True)
class LookedThrough:
    """What is compared of a target whose rows were dumped by a condition."""

    condition: str = ""
    """Only rows for which it is true are compared; empty: all are."""
    why_not: str = ""
    """Why all rows are compared although some were left out of the dump."""

    @property
    def told(self) -> tuple[str, ...]:
        """What a verdict says about it, in lines below its first one."""
        if self.condition:
            return (f"  where: only rows were compared for which `{self.condition}` is true now, in shards and target",)
        if self.why_not:
            missing = "rows that it has left out and that have not changed since are missing in the target"
            return (f"  where: the condition of the dump was not looked at: {self.why_not}; {missing}",)
        return ()


ALL_ROWS = LookedThrough()


def look_through(conditions: Mapping[str, str], changed: Collection[str]) -> LookedThrough:
    """Decide by the condition of each source, and by the columns whose values are others in the target."""
    if not any(conditions.values()):
        return ALL_ROWS
    if len(set(conditions.values())) > 1:
        told = ", ".join(f"{source}: `{condition or 'TRUE'}`" for source, condition in sorted(conditions.items()))
        return LookedThrough(why_not=f"its sources have different ones ({told})")
    (condition,) = set(conditions.values())
    if met := sorted(names_in(condition) & {column.lower() for column in changed}):
        return LookedThrough(why_not=f"`{condition}` names what the target has otherwise: {', '.join(met)}")
    return LookedThrough(condition)


def refused(looked: LookedThrough, words: Mapping[str, str]) -> LookedThrough:
    """Return what is compared if some places cannot evaluate the condition; these by their names, with their words."""
    if not looked.condition or not words:
        return looked
    place, said = next(iter(sorted(words.items())))
    return LookedThrough(why_not=f"{place} cannot evaluate `{looked.condition}`: {said}")
