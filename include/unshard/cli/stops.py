"""Suspended targets, as the command line shows them."""

from typing import Any

from unshard.core.shown import shell
from unshard.core.task.state import PauseState
from unshard.core.window.suspension import SuspendedTarget
from unshard.units.ddl.lockcommands import one_line


def suspended_lines(stop: SuspendedTarget, task: str) -> list[str]:
    """Return why a target is suspended and what helps, as text."""
    return [
        f"{stop}",
        "  its rows are held, and released when the table is altered; after another correction: unshard retry"
        f" {shell(task)}",
    ]


def suspended_document(stop: SuspendedTarget) -> dict[str, Any]:
    """Return a suspended target as JSON."""
    return {
        "source": stop.source,
        "target": str(stop.target),
        "code": stop.refusal.code,
        "column": stop.refusal.column,
        "key": stop.refusal.key,
        "error": one_line(stop.refusal.words),
        "window": stop.window,
        "times": stop.times,
        "since": stop.since.isoformat(),
    }


def pause_document(pause: PauseState | None) -> dict[str, str] | None:
    """Return the pause or stop of a task as JSON."""
    if pause is None:
        return None
    return {"kind": pause.kind, "by": pause.who, "via": pause.via, "reason": pause.reason, "at": pause.at.isoformat()}
