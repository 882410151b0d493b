"""The commands to offer for a lock: in a conflict only those that lead the rows of all shards into the target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unshard_airflow import forms

if TYPE_CHECKING:
    from unshard.core.model import Shard
    from unshard.units.ddl.scene import LockView

UNKNOWN = "unlock: the effect of the statement is unknown, so there is nothing to execute"

JOINED = "unlock: the target follows the join of its shards, so other shards would not fit into it"


@dataclass(frozen=True, slots=True)
class Choices:
    """The offered commands, besides those that are always possible."""

    unlock: bool
    skip: "tuple[Shard, ...]"
    """The shards for which the statement may be skipped."""
    skip_all: bool
    ready: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """Replacements with their statements: what they mean, and the fields of the form."""
    barred: tuple[str, ...] = ()
    """The commands that are not offered, each with its reason."""


def choices(view: "LockView") -> Choices:
    """Return the commands to offer for a lock."""
    from unshard.core.ddl.lockcommands import Force, Replace, Skip
    from unshard.units.ddl.offers import barred, offers

    if view.is_joined:
        return Choices(False, () if view.is_contradicted else view.ready, False, barred=(JOINED,))
    if view.state == "undecided" and not view.lacks_place:
        return Choices(False, forms.shards_of(view), True, barred=(UNKNOWN,))
    if view.state not in ("conflict", "undecided"):
        return Choices(True, forms.shards_of(view), True)
    found = [(offer.text, offer.commands[0]) for offer in offers(view)]
    commands = [command for _, command in found]
    skips = [command.shard for command in commands if isinstance(command, Skip)]
    return Choices(
        any(isinstance(command, Force) for command in commands),
        tuple(shard for shard in skips if shard),
        None in skips,
        tuple((text, forms.fields(command)) for text, command in found if isinstance(command, Replace)),
        barred(view),
    )
