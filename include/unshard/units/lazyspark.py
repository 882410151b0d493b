"""A Spark session that is opened when it is needed, or in advance in a thread. Importing this module is cheap."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from unshard.config import Connections
from unshard.config.allowed import spark_connection


class LazySpark:
    """Returns the session at each call; opens it at the first one, and another one if that is lost.

    `starting` is called before Spark is started or reached, which takes some seconds. The end of `stack` closes all
    sessions.
    """

    def __init__(
        self, stack: ExitStack, connection: str, connections: Connections, name: str, starting: Callable[[], None]
    ) -> None:
        self._stack, self._connection, self._connections, self._name = stack, connection, connections, name
        self._starting = starting
        self._opened: list[Any] = []
        self._opening = threading.Lock()

    def __call__(self) -> Any:
        from unshard.adapters import spark  # pyspark and Arrow take half a second

        with self._opening:
            if not self._opened or not spark.is_usable(self._opened[-1]):
                address = spark_connection(self._connection)
                self._starting()
                session = spark.session(address, self._connections, self._name)
                self._opened.append(self._stack.enter_context(session))
            return self._opened[-1]

    @property
    def is_local(self) -> bool:
        """Whether the executors are in a JVM of this process, so that it gains nothing for a small job."""
        from unshard.adapters import spark

        return spark.is_local(spark.address(spark_connection(self._connection), self._connections))

    def begin(self) -> None:
        """Open the session in a thread, because a job will need it soon; that job meets an error again.

        If the stack ends before, nobody needs it any more: its start is broken off.
        """
        if self._opened:
            return
        thread = threading.Thread(target=self._begin, name="Spark starts", daemon=True)
        thread.start()
        self._stack.callback(self._abandon, thread)

    def _begin(self) -> None:
        with suppress(Exception):
            self()

    def _abandon(self, thread: threading.Thread) -> None:
        from unshard.adapters import spark

        spark.abandon(thread)


def begin(spark: Callable[[], Any]) -> None:
    """Open a session in advance, if that is not done yet."""
    if isinstance(spark, LazySpark):
        spark.begin()
