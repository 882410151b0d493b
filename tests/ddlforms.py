"""The forms of DDL (`tests/unit/golden/ddl_forms.txt`), run end to end on real servers.

Each form runs in a schema of its own on a source, between changes of rows. One task follows all of them. The result of
a form is one of these:

| result | meaning |
|---|---|
| equal | nothing waits, and each target table is the union of its shards |
| undecided: … | an operator must decide; the reason is the message of the target or of unshard |
| ignored | the statement concerns no rows of a shard, or drops them: by design the target does not change |
| rejected before the start | the target cannot create the table; `unshard check` reports this |
| rejected by the source | no statement is in the binlog |
| stops the source | its windows end with this error until the target is corrected |

`python -m tests.ddlforms` writes `docs/ddl-on-tidb.md`. It needs TiDB and MySQL in `.servers`.
"""

import contextlib
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pymysql
import yaml

from tests import versions
from tests.localspark import LocalSpark
from tests.oracle import assert_union
from tests.running import while_up
from tests.taskfile import endpoint, write_sources
from unshard.adapters import mysql, upstream
from unshard.adapters.structures import read_schemas, read_sequences
from unshard.config import load_task
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.statement import read_ddl
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import StructureChange
from unshard.errors import UnshardError
from unshard.errors.ddl import DdlUnreadable
from unshard.units.ddl import coordinate
from unshard.units.ddl.execute import create_target
from unshard.units.ddl.scene import LockView
from unshard.units.relay.tasksource import pull_source
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work
from unshard_demo import servers
from unshard_demo.servers import MariaDb

FORMS = Path(__file__).parent / "unit" / "golden" / "ddl_forms.txt"
PAGE = Path(__file__).parents[1] / "docs" / "ddl-on-tidb.md"
COUNT = 224
SOURCE = "s1"
OWN_VALUES = "own values: each server fills the old rows with values of its own"
ALONE = (178,)
"""Forms that may stop their source: CREATE OR REPLACE TABLE of the only shard."""
BASE = {
    "t1": "(id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT, b INT, d VARCHAR(100), j JSON, KEY idx_a (a))",
    "t2": "(x INT NOT NULL, y INT)",
    "p": "(id INT PRIMARY KEY)",
    "ch": "(id INT PRIMARY KEY, pid INT, CONSTRAINT fk0 FOREIGN KEY (pid) REFERENCES p (id))",
    "pt": "(id INT NOT NULL PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), "
    "PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN (300))",
    "ptx": "(id INT NOT NULL PRIMARY KEY, v INT)",
    "_t1_gho": "(id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT, b INT, d VARCHAR(100), j JSON, KEY idx_a (a))",
}
ROWS = {
    "p": "INSERT INTO p VALUES (1), (2), (3), (4), (5), (6)",
    "t1": "INSERT INTO t1 (a, b, d) VALUES (1, 2, 'x'), (3, 4, 'y'), (5, 6, 'z')",
    "t2": "INSERT INTO t2 VALUES (1, 2), (3, 4)",
    "pt": "INSERT INTO pt VALUES (1, 1), (150, 2), (299, 3)",
}
WITH_PLACE = "INSERT INTO t1 (a, b, d, geo) VALUES (1, 2, 'x', POINT(1, 2)), (3, 4, 'y', POINT(3, 4))"
OBJECTS = {
    "s0": "CREATE SEQUENCE s0",
    "v9": "CREATE VIEW v9 AS SELECT 1 AS one",
    "tr9": "CREATE TRIGGER tr9 BEFORE INSERT ON t1 FOR EACH ROW SET NEW.b = 1",
    "GRANT": "CREATE USER 'u'@'%' IDENTIFIED BY 'x'",
}
SWEEP = ("DROP DATABASE IF EXISTS d9", "DROP USER IF EXISTS 'u'@'%'")
GONE = (DdlKind.DROP_TABLE, DdlKind.TRUNCATE, DdlKind.DROP_DATABASE)


@dataclass(frozen=True)
class Form:
    """One statement and its setup."""

    number: int
    dialect: str
    text: str

    @property
    def schema(self) -> str:
        return f"f{self.number:03}"

    @property
    def statement(self) -> str:
        return re.sub(r"`db`\.|\bdb\.", f"{self.schema}.", self.text)

    @property
    def words(self) -> set[str]:
        return set(re.findall(r"\w+", self.text))

    @property
    def tables(self) -> list[str]:
        found = [name for name in BASE if name in self.words and f"CREATE TABLE `db`.`{name}`" not in self.text]
        made = re.search(r"CREATE (?:/\*.*\*/ )?TABLE (?:IF NOT EXISTS )?(?:`db`\.)?`?(\w+)", self.text)
        found = [name for name in found if made is None or name != made[1] or "REPLACE" in self.words]
        needs_parent = "ch" in found or "REFERENCES" in self.words
        return [*(["p"] if needs_parent and "p" not in found else []), *found]

    def columns(self, table: str) -> str:
        text = BASE[table]
        if table == "t1" and "geo" in self.words:
            text = text.replace("j JSON", "j JSON, geo POINT NOT NULL")
        if table == "t1" and "ck0" in self.words:
            text = text.replace("j JSON", "j JSON, CONSTRAINT ck0 CHECK (b >= 0)")
        if "j" not in self.words:
            text = text.replace(" j JSON,", "")
        if "COALESCE" in self.words:
            text = "(id INT NOT NULL PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3"
        return text


def forms() -> list[Form]:
    """Return the forms of the file; the first COUNT of them are counted."""
    lines = FORMS.read_text().splitlines()[1 : COUNT + 1]
    fields = [line.split(" | ") for line in lines]
    return [Form(n, one[0], one[3].replace("⏎", "\n")) for n, one in enumerate(fields, 1)]


class Run:
    """Some forms on one source and one target, followed by one task."""

    def __init__(self, folder: Path, source: MariaDb, target: MariaDb, chosen: Sequence[Form]) -> None:
        self.folder, self.source, self.target, self.forms = folder, source, target, list(chosen)
        self.results: dict[int, str] = {}

    def play(self) -> dict[int, str]:
        """Return the result of each form by its number."""
        self._sweep()
        for form in self.forms:
            self._make(form)
        self._write_task()
        with self._work() as work:
            self._hand_over(work)
            for form in self.forms:
                if form.number not in self.results:
                    self._execute(form)
            try:
                self._follow(work)
            except UnshardError as error:
                self.results |= {form.number: f"stops the source: {_words(str(error))}" for form in self.forms}
            self._judge(work)
        self._sweep()
        return self.results

    def _sweep(self) -> None:
        self.source.run(*SWEEP)
        for server in (self.source, self.target):
            names = [f"DROP DATABASE IF EXISTS {form.schema}" for form in self.forms]
            server.run("SET foreign_key_checks = 0", *names, "DROP DATABASE IF EXISTS forms_meta")

    def _make(self, form: Form) -> None:
        with contextlib.closing(self.source.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {form.schema}")
            cursor.execute(f"USE {form.schema}")
            for table in form.tables:
                cursor.execute(f"CREATE TABLE {table} {form.columns(table)}")
            for name, text in OBJECTS.items():
                if name in form.words and (name == "s0" or not form.text.startswith("CREATE")):
                    with contextlib.suppress(pymysql.err.Error):  # MySQL has no sequences
                        cursor.execute(text)

    def _write_task(self) -> None:
        write_sources(self.folder, {SOURCE: self.source})
        renamed = [form for form in self.forms if "t9" in form.words]
        routes = {
            form.schema: {
                "schema-pattern": form.schema,
                "table-pattern": "t9",
                "target-schema": form.schema,
                "target-table": "t1",
            }
            for form in renamed
        }
        body = {
            "name": "forms",
            "task-mode": "incremental",
            "shard-mode": "pessimistic",
            "meta-schema": "forms_meta",
            "target-database": endpoint(self.target),
            "routes": routes,
            "mysql-instances": [{"source-id": SOURCE, "route-rules": list(routes), "block-allow-list": "ours"}],
            "block-allow-list": {"ours": {"do-dbs": [form.schema for form in self.forms]}},
            "unshard": {"storage-path": str(self.folder / "storage")},
        }
        (self.folder / "task.yaml").write_text(yaml.safe_dump(body))

    @contextlib.contextmanager
    def _work(self) -> Iterator[Work]:
        with open_work(load_task(self.folder / "task.yaml")) as opened:
            yield replace(opened, spark=LocalSpark, bulk_spark=LocalSpark)

    def _hand_over(self, work: Work) -> None:
        """Create the target tables; a form whose tables the target refuses ends here."""
        with contextlib.closing(mysql.connect(work.sources[SOURCE])) as connection:
            about = upstream.inspect(connection, SOURCE)
            own = [TableId(form.schema, table) for form in self.forms for table in form.tables]
            found = read_schemas(connection, own)
            sequences = read_sequences(connection)
        work.meta.sources.add(SOURCE, about.identity, about.flavor)
        work.meta.ignored.begin(SOURCE, sequences)
        changes = []
        for form in self.forms:
            mine = {table: schema for table, schema in found.items() if table.schema == form.schema}
            try:
                for table, schema in mine.items():
                    with contextlib.closing(mysql.connect(work.target)) as connection:
                        create_target(connection, table, schema)
            except UnshardError as error:
                self.results[form.number] = f"rejected before the start: {_words(str(error))}"
                continue
            for table, schema in mine.items():
                work.meta.structures.put(schema)
                changes.append(StructureChange(Shard(SOURCE, table), table, about.end, schema.digest))
        work.meta.structures.record_all(changes)
        work.meta.checkpoints.start(SOURCE, about.end, about.gtid)

    def _execute(self, form: Form) -> None:
        with contextlib.closing(self.source.connect(database=form.schema)) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            for table in form.tables:
                cursor.execute(WITH_PLACE if "geo" in form.words else ROWS.get(table, "DO 0"))
            cursor.execute("SET sql_mode = DEFAULT")
            try:
                if "CREATE USER" in form.text:
                    self.source.run(*SWEEP)
                cursor.execute(form.statement)
            except pymysql.err.Error as error:
                self.results[form.number] = f"rejected by the source: {error.args[1]}"
                return
            cursor.execute("SET sql_mode = ''")
            cursor.execute("SHOW FULL TABLES WHERE Table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')")
            for table, _ in cursor.fetchall():
                with contextlib.suppress(pymysql.err.Error):  # a key that has no other place
                    cursor.execute(f"INSERT INTO `{table}` () VALUES ()")
                with contextlib.suppress(pymysql.err.Error):
                    cursor.execute(f"UPDATE `{table}` SET b = b + 10 ORDER BY id LIMIT 1")
                with contextlib.suppress(pymysql.err.Error):
                    cursor.execute(f"DELETE FROM `{table}` LIMIT 1")

    def _follow(self, work: Work) -> None:
        moved = True
        while moved:
            pull_source(work, SOURCE)
            moved = False
            while run_window(work, SOURCE).moved:
                moved = True
            scene = coordinate.observe(work.meta)
            for lock in map(scene.facts, scene.locks):
                if lock.is_executable:
                    scene = coordinate.executed(work.meta, work.target, lock.id, scene)
                    moved = True

    def _judge(self, work: Work) -> None:
        locks: dict[str, LockView] = {view.target.schema: view for view in coordinate.views(work.meta)}
        stopped = {stop.target.schema: stop.refusal.error for stop in work.meta.suspended_targets.all()}
        for form in self.forms:
            if form.number in self.results:
                continue
            view = locks.get(form.schema)
            if view is not None:
                why = view.error if view.state is LockState.FAILED else view.reason
                self.results[form.number] = f"{view.state}: {_words(str(why))}"
            elif form.schema in stopped:
                self.results[form.number] = f"stopped: {_words(str(stopped[form.schema]))}"
            else:
                self.results[form.number] = self._compared(form)

    def _compared(self, form: Form) -> str:
        if self._is_gone(form):
            return "ignored"
        if not self.source.run(f"SHOW DATABASES LIKE '{form.schema}'"):
            return "ignored"
        rows = self.source.run(f"SHOW FULL TABLES FROM {form.schema} WHERE Table_type = 'BASE TABLE'")
        tables = [str(name) for name, _ in rows]
        for table in tables:
            of_target = "t1" if table == "t9" else table
            places = self.target.run(f"SHOW TABLES FROM {form.schema} LIKE '{of_target}'")
            if not places:
                return "ignored"
            try:
                assert_union(
                    {SOURCE: self.source},
                    {SOURCE: [f"{form.schema}.`{table}`"]},
                    self.target,
                    f"{form.schema}.`{of_target}`",
                )
            except AssertionError as error:
                return OWN_VALUES if "UUID()" in form.text else f"DIFFERENT: {error}"
        return "equal"

    def _is_gone(self, form: Form) -> bool:
        try:
            ddl = read_ddl(form.statement, 0, form.schema)
        except DdlUnreadable:
            return False
        return ddl.kind in GONE


def _words(text: str) -> str:
    """Return the server's own message from an error's text, without the parts that differ from run to run."""
    found = re.search(r"refuses with error (\d+), (.*?)(?:, the DDL of |, the statement: )", text, re.DOTALL)
    short = (
        f"{found[1]} {found[2]}" if found else re.sub(r" \(.*", "", text.partition("] ")[2] or text, flags=re.DOTALL)
    )
    short = re.sub(r"_shadow_\w+", "t", re.sub(r" line \d+ column \d+", "", short))
    short = short.replace("|", "/")
    return " ".join(re.sub(r"`?forms_meta`?\.|`?f\d{3}`?\.", "", short).split())


def page(on_maria: Mapping[int, str], on_tidb: Mapping[int, str]) -> str:
    """Return the generated page."""
    lines = [
        "# Forms of DDL on TiDB",
        "",
        "This page is generated by `python -m tests.ddlforms` on real servers: TiDB 7.5.5 and MariaDB 10.11 as "
        "targets, MariaDB 10.11 as source. Statements that only MySQL runs come from MySQL 9.7.",
        "",
        "- *equal*: nothing waits, and the target is the union of its shards.",
        "- *undecided*: the DDL waits for an operator, who skips or replaces it. The reason is the message of the "
        "target or of unshard.",
        "- *ignored*: the target does not change, by design (DROP, TRUNCATE, statements without a shard).",
        "- *rejected before the start*: the target cannot create the table of the form. `unshard check` reports this.",
        "- *rejected by the source*: the source of the test does not run the statement.",
        "- *stops the source*: the windows of the source end with this error until the target is corrected.",
        "",
        "| # | statement | target MariaDB | target TiDB |",
        "|--|--|--|--|",
    ]
    for form in forms():
        text = " ".join(form.text.split()).replace("|", "\\|")
        shown = f"`` {text} ``" if "`" in text else f"`{text}`"
        cells = [found.get(form.number, "not run") for found in (on_maria, on_tidb)]
        lines.append(f"| {form.number} | {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def told() -> dict[int, tuple[str, str]]:
    """Return the results on the page, on MariaDB and on TiDB, by the number of the form."""
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {int(number): (on_maria, on_tidb) for number, on_maria, on_tidb in rows}


def play(folder: Path, sources: Mapping[str, MariaDb], target: MariaDb, chosen: Sequence[Form]) -> dict[int, str]:
    """Run forms, each on the source that runs its dialect; `sources` by `mysql` and `mariadb`."""
    found: dict[int, str] = {}
    for name, source in sources.items():
        mine = [form for form in chosen if (form.dialect == "mysql") == (name == "mysql")]
        together = [form for form in mine if form.number not in ALONE]
        for batch in (together, *([form] for form in mine if form.number in ALONE)):
            if batch:
                place = folder / f"{batch[0].schema}-{target.port}"
                place.mkdir(parents=True)
                found |= Run(place, source, target, batch).play()
    return found


def main() -> None:
    """Run all forms and write the page."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        sources = {"mariadb": stack.enter_context(while_up(servers.start_server(folder / "source", server_id=101)))}
        if versions.MYSQL.is_there:
            sources["mysql"] = stack.enter_context(versions.MYSQL.running(folder / "mysql"))
        with while_up(servers.start_server(folder / "target")) as target:
            on_maria = play(folder, sources, target, forms())
        with while_up(servers.start_tidb(folder / "tidb")) as target:
            on_tidb = play(folder, sources, target, forms())
    PAGE.write_text(page(on_maria, on_tidb))
    sys.stdout.write(f"{PAGE}: {sum(text == 'equal' for text in on_tidb.values())} of {COUNT} are equal on TiDB\n")


if __name__ == "__main__":
    main()
