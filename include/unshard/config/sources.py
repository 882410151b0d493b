"""Keys of servers and source files. Files are found by the id of their source, and a task reads those that it uses.

A folder of source files may serve several tasks, so unshard reads only the id of a file that this task does not
use.
"""

import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from unshard.config import checks
from unshard.config.allowed import source_file
from unshard.config.declare import (
    BY_GTID,
    Block,
    FilePlace,
    Ignored,
    Key,
    Refused,
    Values,
    build,
    declared,
    keys_of,
    read_block,
)
from unshard.config.kinds import blocks, boolean, choice, integer, nested, secret, text, texts, variables, words
from unshard.config.rulekeys import EVENT_FILTER, event_rule
from unshard.config.yamltext import Entries, Scalar, modified, read_file
from unshard.core.model import Verify
from unshard.core.rules.filters import EventRule
from unshard.errors.config import KeysExclude, MissingKey, SourceDisabled, SourceTwice, SourceUnknown

FOLDER = "sources"
EXPORTED_TASKS = "tasks"
"""The folder of the task files in an export of `dmctl`; `sources` is next to it."""
TIME_ZONE = "time_zone"
FIRST_SERVER_ID, SERVER_IDS = 2**31, 2**30
LAST_PORT = 65535
LAST_SERVER_ID = 4294967295
RELAY = "the relay is always on and keeps its segments below unshard.storage-path"
PURGE = "segments are removed as soon as no checkpoint needs them"
RETRY = "Airflow retries failed tasks"
OWN_VARIABLES = {
    "autocommit": "a variable that you can set here: unshard controls transactions",
    "sql_select_limit": "a variable that you can set here: unshard reads all rows",
    "timestamp": "a variable that you can set here: a DDL uses the time of the shard that ran it",
    **dict.fromkeys(
        ("character_set_client", "character_set_connection", "character_set_results", "collation_connection"),
        "a variable that you can set here: unshard transfers values as bytes",
    ),
}
IDLE_VARIABLES = {
    "sql_mode": "unshard executes a DDL in the sql_mode of the shard, and writes rows in a mode that changes no value"
}

BYTES = "write it into a file that only unshard's user may read, and set {} to the path"
ENCODINGS = ("bytes", "base64")


class Flavor(StrEnum):
    """Server product of a source."""

    DETECT = ""
    MYSQL = "mysql"
    MARIADB = "mariadb"


@dataclass(frozen=True, slots=True)
class Security:
    """Paths of the certificates of a connection. They are read when it opens."""

    ca: Path | None = Key(
        "ssl-ca",
        text("path", checks.not_empty),
        "Certificates (PEM) of the accepted certificate authorities.",
        shown="those of the system",
    ).field
    certificate: Path | None = Key(
        "ssl-cert", text("path", checks.not_empty), "Client certificate (PEM); requires `ssl-key`."
    ).field
    key: Path | None = Key(
        "ssl-key", text("path", checks.not_empty), "Private key (PEM) of `ssl-cert`, without a password."
    ).field
    allowed: tuple[str, ...] = Key(
        "cert-allowed-cn",
        texts(text("text", checks.not_empty)),
        "The server's certificate must have one of these common names; its host name is then not checked.",
        (),
    ).field
    verify: Verify | None = Key(
        "verify",
        choice(words(Verify)),
        "Checks of the server's certificate: `full` checks its authority and host name, `ca` its "
        "authority, `none` nothing.",
        shown="`full` with `ssl-ca`, `ca` with `cert-allowed-cn`, else `none`",
    ).field


SECURITY = Block(
    "TLS: `security` of a server",
    (
        *keys_of(Security),
        *(
            Refused(f"ssl-{what}-{encoding}", BYTES.format(f"ssl-{what}"), beside=f"ssl-{what}")
            for what in ("ca", "cert", "key")
            for encoding in ENCODINGS
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and account of a server from the files; None for values of an Airflow connection."""

    host: str | None = Key("host", text("text", checks.not_empty), "Name or address; required without `conn-id`.").field
    port: int | None = Key("port", integer(1, LAST_PORT), "TCP port.", shown="that of `conn-id`, else `3306`").field
    user: str | None = Key("user", text("text", checks.not_empty), "User name; required without `conn-id`.").field
    conn_id: str | None = Key(
        "conn-id",
        text("text", checks.connection_id, shown=False),
        "Airflow Connection of the type `mysql` with host, port, login, password and TLS settings; `host`, `port`, "
        "`user` and `security` are not allowed beside it. "
        "The command line reads it from the environment variable `AIRFLOW_CONN_<ID>`.",
    ).field
    password_env: str | None = Key(
        "password-env",
        text("text", checks.environment_name, shown=False),
        "Environment variable with the password; its name begins with `UNSHARD_`, see [above](#secrets).",
    ).field
    password_file: Path | None = Key(
        "password-file",
        text("path", checks.not_empty),
        "File with the password, below `/run/secrets/unshard`, see [above](#secrets); trailing line ends are ignored.",
    ).field
    password: str | None = declared(
        Key(
            "password",
            secret(),
            "The password itself; causes a warning on every start. unshard does not decrypt text of `dmctl encrypt`; a "
            "warning names a password that looks like it, or that `dmctl` has replaced by `******`.",
            shown="empty",
        ),
        repr=False,
    )
    session: tuple[tuple[str, str], ...] = Key(
        "session",
        variables(OWN_VARIABLES, IDLE_VARIABLES),
        "Session variables of every connection to this server. unshard sets those itself that affect values: "
        "they are rejected, except `sql_mode`, which DM's files have and which causes a warning only. With "
        "`foreign_key_checks: 1` of the target, windows respect its foreign keys (limits.md); everything else is "
        "written without checks. `time_zone` of the target is the default of the task's `timezone`, as in DM.",
        (),
    ).field
    security: Security | None = Key(
        "security",
        nested(SECURITY),
        "TLS, see below; without it, or if all its values are empty, unshard uses TLS if the server offers it, and "
        "does not check its certificate. A password itself is sent only to a server that is verified (limits.md).",
    ).field


@dataclass(frozen=True, slots=True)
class Source:
    """One upstream server, from its source file."""

    id: str
    endpoint: Endpoint
    server_id: int
    """Replica id of the relay; derived from task and source if the file has 0."""
    flavor: Flavor
    path: Path
    case_sensitive: bool = False
    filters: tuple[EventRule, ...] = ()


SERVER = Block(
    "Server: `target-database` of the task file, `from` of a source file",
    (*keys_of(Endpoint), Ignored("max-allowed-packet", "unshard uses the server's own limit")),
)

PURGE_BLOCK = tuple(Ignored(name, PURGE) for name in ("interval", "expires", "remain-space"))
CHECKER_NAMES = (
    "check-enable",
    "backoff-rollback",
    "backoff-max",
    "backoff-min",
    "backoff-jitter",
    "backoff-factor",
    "check-interval",
)

SOURCE = Block(
    "Source file",
    (
        Key(
            "source-id",
            text("text", checks.source_id),
            "Id of the source, at most 32 characters; instances refer to it.",
            required=True,
        ),
        Key("from", nested(SERVER), "The server, see below.", required=True),
        Key(
            "server-id",
            integer(0, LAST_SERVER_ID),
            "Replica id of a live run; it must be unique among all replicas. 0: derived from task and source id. Short "
            "pulls inside a window use a random one.",
            0,
        ),
        Key("flavor", choice(words(Flavor)), "Server product.", Flavor.DETECT, shown="detected"),
        Key("enable", boolean(), "A task that uses a disabled source is rejected.", True),
        Key(
            "case-sensitive",
            boolean(),
            "Match names of this source case-sensitively, as with the same key of the task.",
            False,
        ),
        Key("filters", blocks(EVENT_FILTER), "Binlog event filters for every task, after the task's own.", ()),
        Key(
            "purge",
            nested(Block("Purge of the relay log", PURGE_BLOCK)),
            f"DM's rules for old relay files: no effect, {PURGE}.",
        ),
        Key(
            "checker",
            nested(Block("Automatic resuming", tuple(Ignored(name, RETRY) for name in CHECKER_NAMES))),
            f"DM's automatic resuming: no effect, {RETRY}.",
        ),
        Ignored("enable-gtid", BY_GTID, ("false",)),
        Ignored("online-ddl", "set it in the task file", ("true",)),
        Ignored("online-ddl-scheme", "unshard follows both gh-ost and pt-online-schema-change"),
        Ignored("enable-relay", RELAY, ("true",)),
        Ignored("relay-dir", RELAY),
        Ignored("meta-dir", RELAY),
        Ignored("relay-binlog-name", "the relay begins where the task begins"),
        Ignored("relay-binlog-gtid", "the relay begins where the task begins"),
        Ignored("auto-fix-gtid", "DM itself has removed it", ("false",)),
        Ignored("charset", "DM itself has removed it"),
        Ignored("tracer", "DM itself has removed it"),
    ),
)


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
        own, exported = folder / FOLDER, folder.absolute().parent / FOLDER
        # `dmctl config export` writes the folder next to that of the tasks.
        is_exported = folder.absolute().name == EXPORTED_TASKS and not own.is_dir() and exported.is_dir()
        home = exported if is_exported else own
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
    return build(
        Endpoint,
        values,
        password=(values["password"] or "") if not set(secrets) - {"password"} else None,
        session=tuple((name, value) for name, value in values["session"] if name.lower() != TIME_ZONE),
        password_file=_path(values, "password-file"),
        security=security,
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
    return build(Security, values, ca=ca, certificate=certificate, key=key)


def _path(values: Values, key: str) -> Path | None:
    return values.place.file.absolute().parent / values[key] if values[key] else None


def _id(path: Path, node: Entries) -> str:
    value = node.entries.get("source-id")
    if not isinstance(value, Scalar) or not value.text:
        raise MissingKey(f"{path}:1", "source-id", "every source file begins with the id of its source")
    return value.text
