"""Render values as HTML. Every text is escaped; an undefined name in a template is an error."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from unshard.core.masking import refusal, statement
from unshard.core.shown import amount, lasting, size

TEMPLATES, STATIC = Path(__file__).parent / "templates", Path(__file__).parent / "static"
HEADERS = {
    # The browser runs and loads only our own files, whatever a text contains: no script or style of the page itself.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
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


def rate(rows_per_second: float) -> str:
    """`1,234`, `3.5`."""
    return f"{rows_per_second:,.0f}" if rows_per_second >= 10 else f"{rows_per_second:.1f}"


def seconds(since_1970: int) -> datetime:
    """Return a time in seconds since 1970 as a moment."""
    return datetime.fromtimestamp(since_1970, UTC)


def _if_known(show: Callable[[int], str]) -> Callable[[int | None], str]:
    return lambda number: "–" if number is None else show(number)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (statement, refusal, age, lasting, moment, rate, seconds):
        made.filters[show.__name__] = show
    made.filters |= {"amount": _if_known(amount), "size": _if_known(size)}
    return made
