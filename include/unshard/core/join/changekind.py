"""The direction of a change of a joined target, apart from the rest, for the tables that store it."""

from enum import StrEnum


class ChangeKind(StrEnum):
    """The direction in which statements change a target."""

    EXPAND = "expand"
    CONTRACT = "contract"
