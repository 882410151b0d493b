"""Declared keys of a server and of a source file."""

from unshard.config import checks
from unshard.config.declare import BY_GTID, Block, Ignored, Key, Refused
from unshard.config.eventfilters import EVENT_FILTER
from unshard.config.kinds import blocks, boolean, choice, integer, nested, secret, text, texts, variables, words
from unshard.config.model import Flavor
from unshard.core.model import Verify

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
    "sql_mode": "unshard executes a DDL in the sql_mode of the shard, and writes rows in a mode that changes no value",
}

BYTES = "write it into a file that only unshard's user may read, and set {} to the path"
ENCODINGS = ("bytes", "base64")

SECURITY = Block(
    "TLS: `security` of a server",
    (
        Key(
            "ssl-ca",
            text("path", checks.not_empty),
            "Certificates (PEM) of the accepted certificate authorities.",
            shown="those of the system",
        ),
        Key("ssl-cert", text("path", checks.not_empty), "Client certificate (PEM); requires `ssl-key`."),
        Key("ssl-key", text("path", checks.not_empty), "Private key (PEM) of `ssl-cert`, without a password."),
        Key(
            "cert-allowed-cn",
            texts(text("text", checks.not_empty)),
            "The server's certificate must have one of these common names; its host name is then not checked.",
            (),
        ),
        Key(
            "verify",
            choice(words(Verify)),
            "Checks of the server's certificate: `full` checks its authority and host name, `ca` its "
            "authority, `none` nothing.",
            shown="`full` with `ssl-ca`, `ca` with `cert-allowed-cn`, else `none`",
        ),
        *(
            Refused(f"ssl-{what}-{encoding}", BYTES.format(f"ssl-{what}"), beside=f"ssl-{what}")
            for what in ("ca", "cert", "key")
            for encoding in ENCODINGS
        ),
    ),
)

SERVER = Block(
    "Server: `target-database` of the task file, `from` of a source file",
    (
        Key("host", text("text", checks.not_empty), "Name or address; required without `conn-id`."),
        Key("port", integer(1, LAST_PORT), "TCP port.", shown="that of `conn-id`, else `3306`"),
        Key("user", text("text", checks.not_empty), "User name; required without `conn-id`."),
        Key(
            "conn-id",
            text("text", checks.connection_id, shown=False),
            "Airflow Connection of the type `mysql` with host, port, login, password and TLS settings; `host`, `port`, "
            "`user` and `security` are not allowed beside it. "
            "The command line reads it from the environment variable `AIRFLOW_CONN_<ID>`.",
        ),
        Key(
            "password-env",
            text("text", checks.environment_name, shown=False),
            "Environment variable with the password; its name begins with `UNSHARD_`, see [above](#secrets).",
        ),
        Key(
            "password-file",
            text("path", checks.not_empty),
            "File with the password, below `/run/secrets/unshard`, see [above](#secrets); trailing line ends are "
            "ignored.",
        ),
        Key(
            "password",
            secret(),
            "The password itself; causes a warning on every start. unshard does not decrypt text of `dmctl encrypt`; a "
            "warning names a password that looks like it, or that `dmctl` has replaced by `******`.",
            shown="empty",
        ),
        Key(
            "session",
            variables(OWN_VARIABLES, IDLE_VARIABLES),
            "Session variables of every connection to this server. unshard sets those itself that affect values: "
            "they are rejected, except `sql_mode`, which DM's files have and which causes a warning only. With "
            "`foreign_key_checks: 1` of the target, windows respect its foreign keys (limits.md); everything else is "
            "written without checks. `time_zone` of the target is the default of the task's `timezone`, as in DM.",
            (),
        ),
        Key(
            "security",
            nested(SECURITY),
            "TLS, see below; without it, or if all its values are empty, unshard uses TLS if the server offers it, and "
            "does not check its certificate. A password itself is sent only to a server that is verified (limits.md).",
        ),
        Ignored("max-allowed-packet", "unshard uses the server's own limit"),
    ),
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
