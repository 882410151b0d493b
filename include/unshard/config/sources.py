"""Find source files by their id, and read those that a task uses.

A folder of source files may serve several tasks, so unshard reads only the id of a file that this task does not
use.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path

from unshard.config.allowed import source_file
from unshard.config.declare import FilePlace, Values, read_block
from unshard.config.eventfilters import event_rule
from unshard.config.model import Endpoint, Security, Source
from unshard.config.sourcekeys import SOURCE
from unshard.config.yamltext import Entries, Scalar, modified, read_file
from unshard.core.model import Verify
from unshard.errors.config import KeysExclude, MissingKey, SourceDisabled, SourceTwice, SourceUnknown

FOLDER = "sources"
EXPORTED_TASKS = "tasks"
"""The folder of the task files in an export of `dmctl`; `sources` is next to it."""
TIME_ZONE = "time_zone"
FIRST_SERVER_ID, SERVER_IDS = 2**31, 2**30


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of which only the id has been read."""

    path: Path
    node: Entries
    modified: int


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The source files of a task, by source id."""

    files: dict[str, SourceFile]
    looked_at: str

    def source(self, source: str, task: str, place: FilePlace) -> Source:
        """Read the file of a source; `place` is its reference in the task file and collects the warnings."""
        if source not in self.files:
            raise SourceUnknown(str(place), source, self.looked_at)
        file, before = self.files[source], len(place.findings.errors)
        values = read_block(SOURCE, file.node, FilePlace(file.path, 1, "", place.findings))
        place.findings.refuse(before)
        if session_time_zone(values["from"]):
            values["from"].place_of("session").warn_idle(TIME_ZONE, "every session of a source runs in UTC")
        if not values["enable"]:
            raise SourceDisabled(str(place), source, str(file.path))
        return Source(
            values["source-id"],
            endpoint(values["from"]),
            values["server-id"] or server_id(task, source),
            values["flavor"],
            file.path.absolute(),
            values["case-sensitive"],
            tuple(
                event_rule(f"{source}[{number}]", each, values["case-sensitive"])
                for number, each in enumerate(values["filters"])
            ),
        )


def find_sources(folder: Path, listed: tuple[str, ...] | None) -> SourceFiles:
    """Return the listed source files, else all files in `sources`."""
    if listed is None:
        home = _folder_of_sources(folder)
        paths = sorted([*home.glob("*.yaml"), *home.glob("*.yml")])
        looked_at = ", ".join(map(str, paths)) or f"{home}, which has no *.yaml"
    else:
        paths = [folder / name for name in listed]
        looked_at = ", ".join(map(str, paths)) or "none, unshard.sources is empty"
    files: dict[str, SourceFile] = {}
    homes = folder, folder.absolute().parent / FOLDER
    for path in paths:
        changed_at = modified(path)
        node = read_file(source_file(path, *homes))
        source = _id(path, node)
        if source in files:
            raise SourceTwice(f"{path}:{node.lines['source-id']} source-id", source, str(files[source].path))
        files[source] = SourceFile(path, node, changed_at)
    return SourceFiles(files, looked_at)


def _folder_of_sources(folder: Path) -> Path:
    """Return `sources` next to the task file, else next to its folder `tasks`, as `dmctl config export` writes it."""
    own, exported = folder / FOLDER, folder.absolute().parent / FOLDER
    is_exported = folder.absolute().name == EXPORTED_TASKS and not own.is_dir() and exported.is_dir()
    return exported if is_exported else own


def server_id(task: str, source: str) -> int:
    """Return a stable replica id, so that a new connection ends an abandoned older one."""
    return FIRST_SERVER_ID + zlib.crc32(f"{task}/{source}".encode()) % SERVER_IDS


def endpoint(values: Values) -> Endpoint:
    """Build the endpoint from a block of server keys."""
    secrets = [key for key in ("conn-id", "password-env", "password-file", "password") if values[key]]
    if len(secrets) > 1:
        raise KeysExclude(str(values.place), secrets[0], secrets[1])
    for key in ("host", "user", "port"):
        if values["conn-id"] and values.gives(key):
            raise KeysExclude(str(values.place), "conn-id", key)
        if not values["conn-id"] and not values.gives(key) and key != "port":
            raise MissingKey(str(values.place), key, "it is required without conn-id")
    security = _security(values["security"])
    if values["conn-id"] and security:
        raise KeysExclude(str(values.place), "conn-id", "security")
    return Endpoint(
        values["host"],
        values["port"],
        values["user"],
        (values["password"] or "") if not set(secrets) - {"password"} else None,
        values["password-env"],
        values["conn-id"],
        tuple((name, value) for name, value in values["session"] if name.lower() != TIME_ZONE),
        _path(values, "password-file"),
        security,
    )


def session_time_zone(server: Values) -> str:
    """Return the variable `time_zone` of a server's session, which DM's files have; no session of unshard gets it."""
    return next((value for name, value in server["session"] if name.lower() == TIME_ZONE), "")


def _security(values: Values | None) -> Security | None:
    if values is None or not any(values.values.values()):
        return None
    for one, other in (("ssl-cert", "ssl-key"), ("ssl-key", "ssl-cert")):
        if values.gives(one) and not values.gives(other):
            raise MissingKey(str(values.place), other, f"{one} needs it")
    if values["cert-allowed-cn"] and values["verify"] is Verify.NONE:
        raise KeysExclude(str(values.place), "cert-allowed-cn", "verify: none")
    ca, certificate, key = (_path(values, name) for name in ("ssl-ca", "ssl-cert", "ssl-key"))
    return Security(ca, certificate, key, values["verify"], values["cert-allowed-cn"])


def _path(values: Values, key: str) -> Path | None:
    return values.place.file.absolute().parent / values[key] if values[key] else None


def _id(path: Path, node: Entries) -> str:
    value = node.entries.get("source-id")
    if not isinstance(value, Scalar) or not value.text:
        raise MissingKey(f"{path}:1", "source-id", "every source file begins with the id of its source")
    return value.text
