"""The page as Airflow mounts it. It is imported at the first request, because every process loads plugins.

The scheduler, the DAG processor and the process of every task load the plugin but never show the page. The web
framework, the templates and the driver of the meta tables would cost each of them half a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Mounted:
    """An ASGI application that creates the real one at the first request."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._made is None:
            # On a thread, so that the imports do not block the API server's answers to tasks.
            self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)


def page() -> Any:
    """Create the page for this Airflow."""
    from unshard_airflow.page.audit import who_cleared
    from unshard_airflow.page.routes import application
    from unshard_airflow.page.service import Service
    from unshard_airflow.page.site import airflow_site

    return application(airflow_site(), Service(who_cleared))
