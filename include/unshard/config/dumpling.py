"""Options of dumpling in `extra-args`, as DM passes them on: read, applied, or accepted with a warning.

`-B` and `-T` name the dumped schemas and tables. In DM, `-B` narrows the block-allow list of the dump and `-T` replaces
it; the binlog keeps the list of the file. unshard applies them if nothing follows the dump. In the other task modes
they would leave out rows whose changes are applied, so there a warning says that they have no effect.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from unshard.config.declare import FilePlace, Values
from unshard.config.kinds import choice, integer, text
from unshard.config.taskkeys import TaskMode
from unshard.config.unitkeys import CONSISTENCIES, WHERE, Consistency
from unshard.config.yamltext import Scalar
from unshard.core.rules.pattern import compile_pattern
from unshard.core.rules.routing import BlockAllowList, compile_tables
from unshard.errors.config import BadValue, KeyRefused, KeysExclude, LaterKey

SHORT = {
    "-B": "--database",
    "-T": "--tables-list",
    "-t": "--threads",
    "-r": "--rows",
    "-F": "--filesize",
    "-s": "--statement-size",
    "-f": "--filter",
    "-W": "--no-views",
}
KINDS = {
    "--consistency": choice(CONSISTENCIES),
    "--where": WHERE,
    "--threads": integer(0),
    "--rows": integer(0),
    "--database": text(),
    "--tables-list": text(),
}
"""Options that are applied."""
SINGLE = ("--consistency", "--where", "--threads", "--rows")
SELECTING = ("--database", "--tables-list")
SWITCHES = {
    "--no-locks": "the dump takes no lock",
    "--no-views": "views are never dumped",
    "--escape-backslash": "the dump contains no statements",
    "--transactional-consistency": "the key consistency decides",
}
IDLE = {"--filesize": "the key rows sets the size of chunks", "--statement-size": "the dump contains no statements"}
REFUSED = {
    "--filter": "let the block-allow-list select the tables",
    "--case-sensitive": "let the block-allow-list select the tables",
    **dict.fromkeys(("--ca", "--cert", "--key"), "use the block security of the source file"),
    "--params": "use the block session of the source file",
    "--snapshot": "remove it: the dump begins at the source's current position",
}
"""Options with the alternative."""
EVERYWHERE = (
    "the dump has the tables that the block-allow list selects, because task-mode {} also follows their changes"
)


@dataclass(frozen=True, slots=True)
class ExtraArguments:
    """The options that have an effect; None and empty for those that are not set."""

    place: FilePlace
    consistency: Consistency | None = None
    where: str | None = None
    threads: int | None = None
    rows: int | None = None
    schemas: tuple[str, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()

    def narrowed(self, allowed: BlockAllowList, case_sensitive: bool) -> BlockAllowList:
        """Return the list of the dumped tables, from the block-allow list of the file."""
        if not self.schemas and not self.tables:
            return allowed
        place = str(self.place)
        for schema in self.schemas if not self.tables else ():
            if not allowed.passes_schema(schema):
                raise BadValue(place, schema, "a schema that the block-allow list includes")
        schemas = tuple(compile_pattern(_exact(name), case_sensitive, place) for name in self.schemas)
        if not self.tables:
            return replace(allowed, do_dbs=schemas)
        names = tuple((_exact(schema), _exact(name)) for schema, name in self.tables)
        return BlockAllowList(schemas, (), compile_tables(names, case_sensitive, place))


def extra_arguments(settings: Values, mode: TaskMode) -> ExtraArguments:
    """Read `extra-args` of a dump block."""
    place = settings.place_of("extra-args")
    found = _options(settings["extra-args"], place)
    if "--consistency" in found and settings.gives("consistency"):
        raise KeysExclude(str(settings.place), "consistency", "extra-args")
    values = {name: KINDS[name].read(Scalar(given[-1], place.line), place) for name, given in found.items()}
    schemas = _names(found.get("--database", ()))
    tables = tuple(_table(name, schemas, place) for name in _names(found.get("--tables-list", ())))
    if mode not in (TaskMode.FULL, TaskMode.DUMP):
        for name in (name for name in SELECTING if name in found):
            place.warn(f"'{name}' is not applied: {EVERYWHERE.format(mode)}")
        schemas, tables = (), ()
    consistency, where, threads, rows = (values.get(name) for name in SINGLE)
    return ExtraArguments(place, consistency, where, threads, rows, schemas, tables)


def _options(line: str, place: FilePlace) -> Mapping[str, list[str]]:
    """Return the values of the options that are applied, by their long names."""
    found: dict[str, list[str]] = {}
    arguments = iter(_split(line, place))
    for argument in arguments:
        name, value = _named(argument)
        if name in REFUSED:
            raise KeyRefused(str(place), argument.partition("=")[0], REFUSED[name])
        if name in SWITCHES:
            place.warn_idle(name, SWITCHES[name])
            continue
        if name not in KINDS and name not in IDLE:
            raise LaterKey(str(place), argument, "an option of dumpling")
        given = value if value is not None else next(arguments, "")
        if name in IDLE:
            place.warn_idle(name, IDLE[name])
        else:
            found.setdefault(name, []).append(given)
    return found


def _named(argument: str) -> tuple[str, str | None]:
    """Return the long name and the value, if it is part of the argument: `-t4`, `-t=4`, `--threads=4`."""
    if argument.startswith("--") or argument[:2] not in SHORT:
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    value = argument[2:].removeprefix("=")
    return SHORT[argument[:2]], value or None


def _split(line: str, place: FilePlace) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise BadValue(str(place), line, "a line of options with closed quotes") from None


def _exact(name: str) -> str:
    return f"~^{re.escape(name)}$"


def _names(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _table(name: str, schemas: tuple[str, ...], place: FilePlace) -> tuple[str, str]:
    """Split a name; one without a schema is in the only schema of `-B`, as in mydumper."""
    schema, dot, table = name.partition(".")
    if dot:
        return schema, table
    if len(schemas) != 1:
        raise BadValue(str(place), name, "a table with its schema, like shop.orders")
    return schemas[0], name
