"""The condition of a dump (`where`), used as a filter when a target is compared with its shards.

After the dump, every change of a row is applied, whether or not the condition is true for it. So a row of a shard for
which the condition is true is in the target: it was dumped, or it has changed since. And every row of the target is a
row of its shard. So the rows for which the condition is true must be equal on both sides. This holds only if the
condition has the same value for a row of the shard and for the same row of the target.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from unshard.core.rules.expressionfilter import names_in


@dataclass(frozen=True, slots=True)
class ValidationFilter:
    """The rows to compare of a target whose rows were dumped with a condition."""

    condition: str = ""
    """Only rows for which it is true are compared; empty: all rows."""
    why_not: str = ""
    """Why all rows are compared although the dump omitted some."""

    @property
    def told(self) -> tuple[str, ...]:
        """The lines about it in the result of a comparison."""
        if self.condition:
            return (f"  where: only rows were compared for which `{self.condition}` is true now, in shards and target",)
        if self.why_not:
            missing = "rows that the dump omitted and that have not changed since are missing in the target"
            return (f"  where: the condition of the dump was not applied: {self.why_not}; {missing}",)
        return ()


ALL_ROWS = ValidationFilter()


def look_through(conditions: Mapping[str, str], changed: Collection[str]) -> ValidationFilter:
    """Return the filter, from the condition of each source and the columns whose values differ in the target."""
    if not any(conditions.values()):
        return ALL_ROWS
    if len(set(conditions.values())) > 1:
        told = ", ".join(f"{source}: `{condition or 'TRUE'}`" for source, condition in sorted(conditions.items()))
        return ValidationFilter(why_not=f"the sources have different conditions ({told})")
    (condition,) = set(conditions.values())
    if named := sorted(names_in(condition) & {column.lower() for column in changed}):
        differing = ", ".join(named)
        return ValidationFilter(why_not=f"`{condition}` names columns whose values differ in the target: {differing}")
    return ValidationFilter(condition)


def refused(wanted: ValidationFilter, messages: Mapping[str, str]) -> ValidationFilter:
    """Return the filter to use if some places cannot evaluate the condition; `messages` are their errors by place."""
    if not wanted.condition or not messages:
        return wanted
    place, message = next(iter(sorted(messages.items())))
    return ValidationFilter(why_not=f"{place} cannot evaluate `{wanted.condition}`: {message}")
