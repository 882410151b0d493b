"""Give a TiDB target the settings of the sources, so that a check finds only the problem under test."""

import contextlib
from collections.abc import Iterator

from unshard_demo.servers import MariaDb

SHARED = ("sql_mode", "collation_server")
CHOSEN_KEY = {"target-primary-key": "clustered"}
"""Setting of a task file, in the block `unshard`, that accepts TiDB's default."""


def is_tidb(server: MariaDb) -> bool:
    """Return whether the server is a TiDB."""
    ((version,),) = server.run("SELECT VERSION()")
    return "TiDB" in str(version)


def takes_load_data(server: MariaDb) -> bool:
    """Return whether rows are written by LOAD DATA LOCAL: not into TiDB, nor if the server refuses it."""
    return not is_tidb(server) and bool(value(server, "local_infile"))


@contextlib.contextmanager
def settings_of(source: MariaDb, target: MariaDb) -> Iterator[None]:
    """Copy the settings that `unshard check` compares; restore the target's own settings at the end."""
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
