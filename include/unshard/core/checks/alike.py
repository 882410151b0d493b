"""Group the items of prechecks that differ in the names of tables only, so that 500 tables give one line.

Two items are alike if they are equal after all dotted names, such as `shop_1.orders`, are replaced.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from unshard.core.checks.items import Item

NAMES = re.compile(r"[^\s,;:()'\"]+\.[^\s,;:()'\"]+")
MOST = 4
"""Alike items that are printed one by one."""
SHOWN = 3
"""Names in the message of a group."""


def summaries(items: Iterable[Item]) -> list[Item]:
    """Return one item for each group of more than four that are alike, and the others as they are."""
    groups: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        groups.setdefault(_without_names(item), []).append(item)
    found: list[Item] = []
    for group in groups.values():
        found += group if len(group) <= MOST else [_summary(group)]
    return found


def _summary(group: Sequence[Item]) -> Item:
    """Return the first item; its message gets the number of the others and three of their names."""
    names = [*map(_names, group)]
    everywhere = set(names[0]).intersection(*names[1:])
    own = [
        next((name for name in found if name not in everywhere), item.place)
        for found, item in zip(names, group, strict=True)
    ]
    others = f"the same for {len(group) - 1} others, such as {', '.join(own[1:][:SHOWN])}"
    return replace(group[0], message=f"{group[0].message}; {others}")


def _names(item: Item) -> list[str]:
    return [*NAMES.findall(item.place), *NAMES.findall(item.message)]


def _without_names(item: Item) -> tuple[str, ...]:
    texts = (NAMES.sub("…", text) for text in (item.place, item.message, item.remedy))
    return item.severity, item.name, item.code, *texts
