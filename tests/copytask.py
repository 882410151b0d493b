"""A task that copies tables one to one, under the same names, with a full load and windows; it runs without a JVM."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.oracle import assert_union
from tests.taskfile import TaskFile, endpoint, task_body, tidied, write_sources
from tests.tidbsettings import is_tidb
from unshard.core.sql.lastwrites import NAME
from unshard_demo.servers import MariaDb

OPTIONS = re.compile(r" (ENGINE|AUTO_INCREMENT|TRANSACTIONAL|ROW_FORMAT|PAGE_CHECKSUM)=\w+")
"""Options in which a copy may differ: a table without transactions is copied into one that has them."""


@dataclasses.dataclass
class Copy(TaskFile):
    """The schemas whose names begin with `<name>` of each source are copied into schemas of the same names."""

    name: str
    path: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb

    def write(self, instance: Mapping[str, object] | None = None, **keys: object) -> None:
        """Write the task file; `instance` and `keys` are added."""
        write_sources(self.path.parent, self.sources)
        body = task_body(self.name, self.sources, self.target, **{"routes": {}, "instance": instance, **keys})  # type: ignore[arg-type]
        for one in body["mysql-instances"]:
            if not one["route-rules"]:
                del one["route-rules"]
        body["unshard"] = {"storage-path": str(self.path.parent / "storage"), **keys.get("unshard", {})}  # type: ignore[dict-item]
        body["block-allow-list"] = {"ours": {"do-dbs": [f"{self.name}*"]}}
        self.write_body(body)

    def with_session(self, **variables: object) -> None:
        """Write the task file with session variables of the target."""
        self.write(**{"target-database": {**endpoint(self.target), "session": variables}})

    def up(self, *statements: str, source: str = "s1") -> None:
        """Run statements in one session of a source, in the schema `<name>`."""
        self.sources[source].run(f"USE {self.name}", *statements)

    def assert_same(self, *tables: str, source: str = "s1") -> None:
        """Assert that the target has exactly these tables of the schema `<name>`, with the rows of the source."""
        query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.name}'"
        assert sorted(name for (name,) in self.target.run(query) if name != NAME) == sorted(tables)
        for table in tables:
            assert_union(self.sources, {source: [f"{self.name}.{table}"]}, self.target, f"{self.name}.{table}")

    def assert_equal(self, source: str = "s1") -> None:
        """Assert that the target equals the source: schemas, tables, their structures and their rows."""
        server = self.sources[source]
        assert self.schemas(self.target) == self.schemas(server)
        assert self.tables(self.target) == self.tables(server)
        for table in self.tables(server):
            assert_union(self.sources, {source: [table]}, self.target, table)

    def schemas(self, server: MariaDb) -> dict[str, str]:
        """Return the schemas of the task with their default collations; with TiDB without, it lacks most of them."""
        query = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
        has_all = not is_tidb(self.target)
        return {str(name): str(found) * has_all for name, found in server.run(query) if self.is_ours(str(name))}

    def tables(self, server: MariaDb) -> dict[str, str]:
        """Return the tables of these schemas with their structures; with TiDB only names of columns and indexes."""
        found = server.run(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        )
        names = [f"`{schema}`.`{table}`" for schema, table in found if self.is_ours(str(schema)) and table != NAME]
        if is_tidb(self.target):
            return {name: _names(server, name) for name in names}
        return {name: OPTIONS.sub("", str(server.run(f"SHOW CREATE TABLE {name}")[0][1])) for name in names}

    def is_ours(self, schema: str) -> bool:
        return schema.startswith(self.name) and not schema.endswith("_meta")


def _names(server: MariaDb, table: str) -> str:
    """Return the columns of a table in order, and its indexes with their columns; TiDB prints all else differently."""
    columns = [row[0] for row in server.run(f"SHOW COLUMNS FROM {table}")]
    indexes = sorted((str(row[2]), int(str(row[3])), str(row[4])) for row in server.run(f"SHOW INDEX FROM {table}"))
    return f"{columns} {indexes}"


@contextlib.contextmanager
def copying(name: str, folder: Path, sources: Mapping[str, MariaDb], target: MariaDb) -> Iterator[Copy]:
    """Create the schema `<name>` on each source, and the files of a task that copies it."""
    with tidied(*sources.values(), target):
        for server in sources.values():
            server.run(f"CREATE DATABASE {name}")
        made = Copy(name, folder / "task.yaml", sources, target)
        made.write()
        yield made
