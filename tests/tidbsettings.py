"""Gives a TiDB target the settings of the sources, so that a check finds only what its test is about."""

import contextlib
from collections.abc import Iterator

from unshard_demo.servers import MariaDb

SHARED = ("sql_mode", "collation_server")
CHOSEN_KEY = {"target-primary-key": "clustered"}
"""What a task file says in the block `unshard` to accept TiDB's default."""


def is_tidb(server: MariaDb) -> bool:
    """Return whether the server is a TiDB."""
    ((version,),) = server.run("SELECT VERSION()")
    return "TiDB" in str(version)


@contextlib.contextmanager
def settings_of(source: MariaDb, target: MariaDb) -> Iterator[None]:
    """Copy what `unshard check` compares; the target gets its own settings back at the end."""
    if not is_tidb(target):
        yield
        return
    own = {name: value(target, name) for name in SHARED}
    for name in SHARED:
        target.run(f"SET GLOBAL {name} = '{value(source, name)}'")
    try:
        yield
    finally:
        for name, before in own.items():
            target.run(f"SET GLOBAL {name} = '{before}'")


def value(server: MariaDb, variable: str) -> object:
    """Return a global variable."""
    ((found,),) = server.run(f"SELECT @@GLOBAL.{variable}")
    return found
