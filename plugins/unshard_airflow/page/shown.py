"""Render values as HTML. Every text is escaped; an undefined name in a template is an error."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from unshard.core.masking import refusal, statement
from unshard.core.shown import lasting

TEMPLATES = Path(__file__).parent / "templates"
STYLE = (TEMPLATES / "style.css").read_text()
HEADERS = {
    # No scripts: the browser runs and loads only sources in this list, whatever a text contains.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'self';"
    " base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` a browser would hide the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def html(template: str, values: Mapping[str, Any]) -> str:
    """Render a template."""
    return _environment().get_template(template).render(values)


def age(since: datetime, now: datetime | None = None) -> str:
    """`12 s`, `3 min`, `2 h 5 min`, `4 d 2 h`."""
    return lasting(max(0, int(((now or datetime.now(UTC)) - since).total_seconds())))


def moment(at: datetime | None) -> str:
    """`2026-11-20 14:03:59 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if at else "–"


def amount(number: int | None) -> str:
    """`1,234,567`."""
    return "–" if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """Return bytes in the largest unit with a value of at least 1."""
    if number is None:
        return "–"
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (statement, refusal, age, lasting, moment, amount, size):
        made.filters[show.__name__] = show
    return made
