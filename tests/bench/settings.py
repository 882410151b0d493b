"""The settings of the servers of a bench run: fast ones, or durable ones. The page shows what the servers report.

With durable settings a power failure loses no commit. A target and a replica then write a binlog, too, and both sync
it with each commit, so both sides do equal work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unshard_demo.servers import MariaDb

REPORTED = (
    "version",
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "binlog_row_image",
    "log_slave_updates",
    "slave_parallel_mode",
    "slave_parallel_threads",
    "performance_schema",
)
FAST = {"sync_binlog": 0, "innodb_flush_log_at_trx_commit": 2}
SAFE = {"sync_binlog": 1, "innodb_flush_log_at_trx_commit": 1}
OWN_BINLOG = ("--log-bin=mysql-bin", "--binlog-format=ROW", "--sync-binlog=1", "--log-slave-updates", "--server-id=7")

Reported = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the servers of a run."""

    pool: str = "512M"
    is_durable: bool = False

    @property
    def label(self) -> str:
        return "durable settings" if self.is_durable else ""

    @property
    def roomy(self) -> tuple[str, ...]:
        """Return the options of every server."""
        doublewrite = f"--innodb-doublewrite={int(self.is_durable)}"
        return f"--innodb-buffer-pool-size={self.pool}", "--innodb-log-file-size=256M", doublewrite

    @property
    def target(self) -> tuple[str, ...]:
        """Return the options of a target or a replica."""
        safe = ("--innodb-flush-log-at-trx-commit=1", *OWN_BINLOG) if self.is_durable else ()
        return *self.roomy, *safe

    def write_fast(self, source: MariaDb) -> None:
        """Let a source write its data fast: that belongs to no measured time."""
        source.run(*_globals(FAST))

    def write_as_measured(self, source: MariaDb) -> None:
        source.run(*_globals(SAFE if self.is_durable else FAST))


PLAIN = Settings()


def _globals(values: Mapping[str, int]) -> Iterator[str]:
    return (f"SET GLOBAL {name} = {value}" for name, value in values.items())


def reported(server: MariaDb) -> Reported:
    """Read the settings from a running server."""
    names = ", ".join(f"'{name}'" for name in REPORTED)
    rows = server.run(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    found = {str(name): str(value) for name, value in rows}
    return {name: found[name] for name in REPORTED if name in found}


def described(servers: Mapping[str, Reported]) -> Iterator[str]:
    """Yield a line with the settings that all servers share, and one for each server with its own."""
    every = [*servers.values()]
    first = every[0] if every else {}
    shared = {name: value for name, value in first.items() if all(value == other.get(name) for other in every)}
    if shared:
        yield f"all servers: {_listed(shared)}"
    for role, found in servers.items():
        if own := {name: value for name, value in found.items() if name not in shared}:
            yield f"{role}: {_listed(own)}"


def _listed(found: Reported) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in found.items())
