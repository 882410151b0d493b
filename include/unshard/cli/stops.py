"""Targets that have stopped, as the command line shows them."""

from typing import Any

from unshard.core.stops import Stop
from unshard.units.orders import one_line


def stop_lines(stop: Stop, task: str) -> list[str]:
    """Tell a person why a target is stopped, and what helps."""
    return [f"{stop}", "  its rows are held, and released when the table is altered; if something else was mended: "
            f"unshard retry {task}"]  # fmt: skip


def stop_document(stop: Stop) -> dict[str, Any]:
    """Return a target that has stopped as JSON."""
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
