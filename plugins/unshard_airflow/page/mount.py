"""The page as Airflow mounts it: imported at the first request, because every process loads plugins.

The scheduler, the DAG processor and the process of every task read the plugin and never show the page; the
web framework, the templates and the meta store's driver would cost each of them half a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Mounted:
    """An ASGI application that makes the real one when it is first called."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._made is None:
            # On a thread: the imports must not hold up what the API server answers to tasks meanwhile.
            self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)


def page() -> Any:
    """Make the page over the Airflow that runs here."""
    from unshard_airflow.page.app import application
    from unshard_airflow.page.audit import who_cleared
    from unshard_airflow.page.desk import TaskFolder
    from unshard_airflow.page.site import airflow_site

    return application(airflow_site(), TaskFolder(who_cleared))
