"""Read files into a `Task` and check rules that involve several keys.

These are references between blocks, keys that exclude each other, and the source files of a task. Reading opens
no connection and needs no environment, so a DAG file may do it at import.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from unshard.config.checks import OFFSET, time_zone
from unshard.config.declare import Block, FilePlace, Values, build, read_block
from unshard.config.dumpling import ExtraArguments, extra_arguments
from unshard.config.model import Instance, Task
from unshard.config.rulekeys import allow_list, event_rule, mapping_rule, route_rule, row_filter
from unshard.config.sources import TIME_ZONE, Source, SourceFiles, endpoint, find_sources, session_time_zone
from unshard.config.taskkeys import OPTIONS, TASK, Options, ShardMode, TaskMode
from unshard.config.unitkeys import LOADER, MYDUMPER, SYNCER, DumpOptions, LoadOptions, OnDuplicate, SyncOptions
from unshard.config.yamltext import Entries, Scalar, modified, read_file
from unshard.core.ddl.online import SHADOW_RULES, TRASH_RULES, OnlineRules, name_rules
from unshard.core.model import Location
from unshard.core.rules.filters import EventFilter
from unshard.core.rules.routing import BlockAllowList, RouteRule, Routing
from unshard.core.window.plan import WindowLimits
from unshard.errors.config import (
    BadValue,
    KeysExclude,
    MissingKey,
    RuleTwice,
    ShardingContradicted,
    SourceTwice,
    UnknownBlock,
    UnusedBlock,
)
from unshard.errors.meta import RelayNeedsFolder, StartNotNew

T = TypeVar("T")
FIRST_POSITION = 4
OBJECT_STORE, HDFS = "s3://", "webhdfs://"
OLD_LIST, LIST = "black-white-list", "block-allow-list"
REFERENCES = {
    "route-rules": "routes",
    "filter-rules": "filters",
    "expression-filters": "expression-filter",
    "column-mapping-rules": "column-mappings",
    "mydumper-config-name": "mydumpers",
    "loader-config-name": "loaders",
    "syncer-config-name": "syncers",
    "validator-config-name": "validators",
}
"""The keys of an instance that name blocks, with the keys of the task that have these blocks."""
EXPORTED_KEYS = ("enable-heartbeat", "ansi-quotes", "remove-meta")
"""`dmctl` exports every key of a task: these, and `is-sharding: false` of a task that has only `shard-mode`."""


def load_task(path: Path) -> Task:
    """Read a task file and its source files; raises a ConfigError with the place of each problem."""
    changed_at = modified(path)
    root = read_file(path)
    values = read_block(TASK, root, FilePlace(path, 1))
    findings = values.place.findings
    if findings.errors:
        _check_references(values)
        findings.refuse()
    folder = path.absolute().parent
    options = values["unshard"] or _defaults(OPTIONS, values.place)
    with findings.collected():
        files = find_sources(path.parent, options["sources"])
        instances = _instances(values, files)
    with findings.collected():
        server = endpoint(values["target-database"])
        target = replace(server, session=(*server.session, *options["target-primary-key"].session))
    with findings.collected():
        _check_old_switch(values, root)
    with findings.collected():
        zone = _time_zone(values)
    with findings.collected():
        own = _options(options, folder, is_strict=_is_strict(values))
    findings.refuse()
    return Task(
        name=values["name"],
        path=path.absolute(),
        task_mode=values["task-mode"],
        shard_mode=_shard_mode(values),
        meta_schema=values["meta-schema"],
        timezone=zone,
        target=target,
        instances=instances,
        options=own,
        clean_dump_file=values["clean-dump-file"],
        ignored_checks=values["ignore-checking-items"],
        warnings=tuple(note.text for note in findings.warnings),
        idle=tuple(note.text for note in findings.warnings if note.is_idle),
        passwords=tuple(note.text for note in findings.warnings if note.is_password),
        files=(
            (path.absolute(), changed_at),
            *((each.source.path, files.files[each.source.id].modified) for each in instances),
        ),
    )


def has_changed(task: Task) -> bool:
    """Whether a file of the task has been changed since it was read."""
    return any(modified(path) != changed_at for path, changed_at in task.files)


def _time_zone(values: Values) -> str:
    """Return the key `timezone`; without it the time zone of the target's sessions, as in DM."""
    server: Values = values["target-database"]
    zone, place = session_time_zone(server), server.place_of("session")
    own: str = values["timezone"]
    if not zone or zone == own:
        return own
    if values.gives("timezone"):
        place.warn_idle(TIME_ZONE, "the key timezone of the task takes precedence")
        return own
    if zone.upper() == "SYSTEM":
        place.warn(f"'{TIME_ZONE}' is not applied: set the key timezone to the target's time zone; it is {own} now")
        return own
    if wanted := time_zone(zone):
        raise BadValue(str(place), zone, wanted)
    return zone


def _shard_mode(values: Values) -> ShardMode:
    is_sharding = values.gives("is-sharding") and values["is-sharding"]
    return values["shard-mode"] or (ShardMode.PESSIMISTIC if is_sharding else ShardMode.NONE)


def _is_strict(values: Values) -> bool:
    found: bool = values["strict-optimistic-shard-mode"]
    if found and _shard_mode(values) is not ShardMode.OPTIMISTIC:
        values.place_of("strict-optimistic-shard-mode").warn_idle(
            "strict-optimistic-shard-mode", "shard-mode is not optimistic"
        )
        return False
    return found


def _check_old_switch(values: Values, root: Entries) -> None:
    """Reject `is-sharding` and `shard-mode` that contradict each other, as DM does, and warn of the old switch."""
    if not values.gives("is-sharding"):
        return
    is_given = values.gives("shard-mode")
    if is_given and not values["is-sharding"] and root.entries.keys() >= set(EXPORTED_KEYS):
        values.place_of("is-sharding").warn_idle("is-sharding", "the key shard-mode takes precedence")
        return
    if values["is-sharding"] != is_given and "shard-mode" in root.entries:
        raise ShardingContradicted(str(values.place_of("is-sharding")), "" if not is_given else values["shard-mode"])
    if not values["is-sharding"]:
        values.place_of("is-sharding").warn("unshard always coordinates the shards of one target")
    elif not values.gives("shard-mode"):
        values.place_of("is-sharding").warn("'is-sharding' is the old way to say 'shard-mode: pessimistic'")


def _options(values: Values, folder: Path, *, is_strict: bool) -> Options:
    milliseconds = int(values["window-time"] / timedelta(milliseconds=1))
    return build(
        Options,
        values,
        storage_path=storage_path(values, folder),
        bulk_connection=values["bulk-connection"] or values["spark-connection"],
        window=WindowLimits(values["window-size"], values["window-rows"], milliseconds),
        storage_conn_id=_storage_conn_id(values),
        is_strict=is_strict,
    )


def _storage_conn_id(values: Values) -> str:
    found: str = values["storage-conn-id"]
    if found and not values["storage-path"].startswith(OBJECT_STORE):
        values.place_of("storage-conn-id").warn_idle("storage-conn-id", "storage-path is not a bucket")
    return found


def storage_path(values: Values, folder: Path) -> str:
    """Return an absolute path, or the URI of a bucket or an HDFS folder."""
    value: str = values["storage-path"]
    if value.startswith("hdfs://"):
        raise RelayNeedsFolder(str(values.place_of("storage-path")), value)
    if value.startswith((OBJECT_STORE, HDFS)):
        return value.rstrip("/")
    return os.path.normpath(folder / value.removeprefix("file://"))


class _NamedBlocks:
    """The blocks below one key, and those that an instance uses."""

    def __init__(self, key: str, blocks: dict[str, Values] | None) -> None:
        self.key = key
        self.blocks = blocks or {}
        self.taken: set[str] = set()

    def take(self, name: str, place: FilePlace) -> Values:
        if name not in self.blocks:
            raise UnknownBlock(str(place), name, self.key, ", ".join(self.blocks) or "nothing")
        self.taken.add(name)
        return self.blocks[name]

    def refuse_unused(self, reference: str) -> None:
        """Reject blocks without a reference, as DM does; it accepts such lists, so they cause a warning."""
        for name in [each for each in self.blocks if each not in self.taken]:
            place = self.blocks[name].place
            if self.key == LIST:
                place.warn(f"'{name}' has no effect: name it in {reference} of an instance, or remove it")
            else:
                place.findings.errors.append(UnusedBlock(str(place), name, reference))


_Library = Mapping[str, _NamedBlocks]
"""All named blocks of a task file, by the key of an instance that names them."""


def _library(task: Values) -> _Library:
    named = {reference: _NamedBlocks(key, task[key]) for reference, key in REFERENCES.items()}
    return named | {LIST: _NamedBlocks(LIST, _newer(task, LIST, OLD_LIST))}


def _check_references(task: Values) -> None:
    """Collect the errors of references and of source files, for a task file that has errors of its own."""
    collected, library = task.place.findings.collected, _library(task)
    options = task["unshard"] or _defaults(OPTIONS, task.place)
    files = None
    with collected():
        files = find_sources(task.place.file.parent, options["sources"])
    for values in task["mysql-instances"] or ():
        if files and values["source-id"]:
            with collected():
                files.source(values["source-id"], task["name"], values.place_of("source-id"))
        for reference, key in REFERENCES.items():
            names = values[reference] if task[key] is not None or not task.gives(key) else ()
            for name in (names,) if isinstance(names, str) else names or ():
                with collected():
                    library[reference].take(name, values.place_of(reference))


def _instances(task: Values, files: SourceFiles) -> tuple[Instance, ...]:
    library = _library(task)
    found: dict[str, Instance] = {}
    lines: dict[str, FilePlace] = {}
    if not task["mysql-instances"]:
        raise BadValue(str(task.place_of("mysql-instances")), "[]", "a list with at least one instance")
    for values in task["mysql-instances"]:
        name, place = values["source-id"], values.place_of("source-id")
        with place.findings.collected():
            if name in lines:
                raise SourceTwice(str(place), name, str(lines[name]))
            lines[name] = place
            found[name] = _instance(task, values, files.source(name, task["name"], place), library)
    with task.place.findings.collected():
        _refuse_spellings(library["route-rules"])
    if len(found) == len(task["mysql-instances"]):
        for reference, named in library.items():
            named.refuse_unused(reference)
    return tuple(found.values())


def _refuse_spellings(routes: _NamedBlocks) -> None:
    """Reject targets that differ in case only: TiDB, and MySQL on some systems, treat them as one table."""
    spelt: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}
    for name, values in routes.blocks.items():
        schema, table = values["target-schema"], values["target-table"]
        for target in ((schema,), (schema, table)):
            first, known = spelt.setdefault(tuple(part.lower() for part in target), (name, target))
            if known != target:
                wanted = f"spelt as in route '{first}', which has '{'.'.join(known)}'"
                raise BadValue(str(values.place), ".".join(target), wanted)


def _instance(task: Values, values: Values, source: Source, library: _Library) -> Instance:
    if values["validator-config-name"]:
        library["validator-config-name"].take(values["validator-config-name"], values.place_of("validator-config-name"))
    mode, dump = task["task-mode"], _settings(values, "mydumper", MYDUMPER, library)
    arguments = extra_arguments(dump, mode)
    return Instance(
        source,
        _routing(task, values, source, library, arguments),
        *_start(mode, values),
        _dump(mode, values, dump, arguments),
        _load(values, _settings(values, "loader", LOADER, library)),
        build(SyncOptions, _settings(values, "syncer", SYNCER, library)),
        _online(task),
        start_unset=_start_unset(mode, values),
    )


def _online(task: Values) -> OnlineRules | None:
    """Return the rules for tables of online-DDL tools; if the file has the key, names alone identify them, as in DM."""
    own = {key: task[key] for key in ("shadow-table-rules", "trash-table-rules")}
    if not task["online-ddl"] and not task["online-ddl-scheme"]:
        for key in (key for key, rules in own.items() if rules):
            task.place_of(key).warn_idle(key, "online-ddl is off")
        return None
    defaults, is_named = (SHADOW_RULES, TRASH_RULES), task.gives("online-ddl") or task.gives("online-ddl-scheme")
    return OnlineRules(
        *(
            name_rules(rules or default, are_own=bool(rules) or is_named)
            for rules, default in zip(own.values(), defaults, strict=True)
        )
    )


def _start(mode: TaskMode, instance: Values) -> tuple[Location | None, str]:
    meta = instance["meta"]
    if meta is None:
        return None, ""
    if mode is not TaskMode.INCREMENTAL:
        place = instance.place_of("meta")
        place.warn(f"'meta' has no effect in task-mode {mode}: windows begin where the dump ends")
        return None, ""
    if not meta["binlog-name"]:
        if meta["binlog-gtid"]:
            return None, meta["binlog-gtid"]
        if meta["binlog-pos"] > FIRST_POSITION:
            raise MissingKey(str(meta.place), "binlog-name", "windows begin there")
        return None, ""
    if meta["binlog-gtid"]:
        meta.place_of("binlog-gtid").warn_idle("binlog-gtid", "binlog-name and binlog-pos are the start")
    return Location(meta["binlog-name"], max(meta["binlog-pos"], FIRST_POSITION)), ""


def _start_unset(mode: TaskMode, instance: Values) -> str:
    """Return the place of a `meta` that is written without a position; empty for any other."""
    meta = instance["meta"]
    is_unset = meta is not None and not meta["binlog-name"] and not meta["binlog-gtid"]
    return str(meta.place) if mode is TaskMode.INCREMENTAL and is_unset else ""


def _settings(instance: Values, unit: str, block: Block, library: _Library) -> Values:
    reference = f"{unit}-config-name"
    if instance[reference] and instance.gives(unit):
        raise KeysExclude(str(instance.place), reference, unit)
    if instance[reference]:
        return library[reference].take(instance[reference], instance.place_of(reference))
    inline: Values | None = instance[unit]
    return inline or _defaults(block, instance.place)


def _defaults(block: Block, place: FilePlace) -> Values:
    return read_block(block, Scalar(None, place.line), place)


def _dump(mode: TaskMode, instance: Values, settings: Values, arguments: ExtraArguments) -> DumpOptions:
    rows = settings["rows"] if arguments.rows is None else arguments.rows
    where, place = _where(mode, settings, arguments)
    return build(
        DumpOptions,
        settings,
        threads=arguments.threads or instance["mydumper-thread"] or settings["threads"],
        chunk_rows=rows or sys.maxsize,
        consistency=arguments.consistency or settings["consistency"],
        where=where,
        where_place=place,
    )


def _where(mode: TaskMode, settings: Values, arguments: ExtraArguments) -> tuple[str, str]:
    condition, place = settings["where"], settings.place_of("where")
    if arguments.where is not None:
        place = arguments.place
        if settings.gives("where") and arguments.where.strip() != condition.strip():
            raise KeysExclude(str(settings.place), "where", "extra-args")
        condition = arguments.where
    if condition and mode is TaskMode.INCREMENTAL:
        place.warn(f"'where' has no effect in task-mode {mode}: nothing is dumped")
        return "", ""
    return condition.strip(), str(place) if condition else ""


def _load(instance: Values, settings: Values) -> LoadOptions:
    old: OnDuplicate = settings["on-duplicate"]
    new: OnDuplicate | None = settings["on-duplicate-logical"]
    if new and settings.gives("on-duplicate") and new is not old:
        raise KeysExclude(str(settings.place), "on-duplicate", "on-duplicate-logical")
    return build(
        LoadOptions, settings, threads=instance["loader-thread"] or settings["pool-size"], on_duplicate=new or old
    )


def _routing(task: Values, instance: Values, source: Source, library: _Library, arguments: ExtraArguments) -> Routing:
    case_sensitive = source.case_sensitive or task["case-sensitive"]

    def named(reference: str, rule: Callable[[str, Values, bool], T]) -> tuple[T, ...]:
        place = instance.place_of(reference)
        names = _once(instance[reference], place)
        return tuple(rule(name, library[reference].take(name, place), case_sensitive) for name in names)

    def route(name: str, values: Values, case_sensitive: bool) -> RouteRule:
        schema = values["target-schema"]
        if schema.lower() == task["meta-schema"].lower():
            place = str(values.place_of("target-schema"))
            raise BadValue(place, schema, "a schema for merged tables: it is the meta-schema")
        return route_rule(name, values, case_sensitive)

    rules = named("route-rules", route)
    allowed = arguments.narrowed(_allowed(instance, case_sensitive, library), case_sensitive)
    events = EventFilter((*named("filter-rules", event_rule), *source.filters))
    mappings = named("column-mapping-rules", mapping_rule)
    filters = named("expression-filters", row_filter)
    return Routing(rules, allowed, task["meta-schema"], source.id, mappings, events, filters)


def _once(names: Iterable[str], place: FilePlace) -> tuple[str, ...]:
    seen: list[str] = []
    for name in names:
        if name in seen:
            raise RuleTwice(str(place), name)
        seen.append(name)
    return tuple(seen)


def _allowed(instance: Values, case_sensitive: bool, library: _Library) -> BlockAllowList:
    name = _newer(instance, LIST, OLD_LIST)
    if not name:
        return BlockAllowList()
    place = instance.place_of(LIST if instance.gives(LIST) else OLD_LIST)
    return allow_list(library[LIST].take(name, place), case_sensitive)


def _newer(values: Values, new: str, old: str) -> Any:
    """Return the value of a key that also has an old name, which counts only if the new one is empty, as in DM."""
    if values[new] and values[old]:
        values.place_of(old).warn_idle(old, f"the key {new} takes precedence")
    elif values[old]:
        values.place_of(old).warn(f"'{old}' is the old name of '{new}'")
    return values[new] or values[old]


def starting_at(task: Task, text: str) -> Task:
    """Return the task with this start time; without an offset it is in the task's time zone."""
    if task.task_mode is not TaskMode.INCREMENTAL:
        raise StartNotNew(task.name, f"its task-mode is {task.task_mode}, so windows begin where the dump ends")
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadValue("start time", text, "a time like 2026-01-31T23:59:59, with or without an offset") from None
    moment = found if found.tzinfo else found.replace(tzinfo=zone_of(task.timezone))
    instances = tuple(replace(instance, start_time=moment) for instance in task.instances)
    return replace(task, instances=instances)


def zone_of(name: str) -> tzinfo:
    """Return the time zone of the task's `timezone`."""
    offset = OFFSET.fullmatch(name)
    if not offset:
        return ZoneInfo(name)
    minutes = int(offset[2]) * 60 + int(offset[3])
    return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
