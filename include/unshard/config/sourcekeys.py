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
RETRY = "Airflow's retries repeat what fails"
OWN_VARIABLES = {
    "time_zone": "a variable to set here: every session runs in UTC; the task has the key timezone",
    "autocommit": "a variable to set here: unshard commits on its own",
    "sql_select_limit": "a variable to set here: all rows are read",
    "timestamp": "a variable to set here: a DDL has the time of the shard that ran it",
    **dict.fromkeys(
        ("character_set_client", "character_set_connection", "character_set_results", "collation_connection"),
        "a variable to set here: values travel as bytes",
    ),
}
IDLE_VARIABLES = {
    "sql_mode": "a DDL is executed in the sql_mode that the shard had, rows are written in one that changes no value",
    "foreign_key_checks": "rows are written, and DDL is executed, without them",
}

BYTES = "write it into a file that only unshard's user may read, and name the file with {}"
ENCODINGS = ("bytes", "base64")

SECURITY = Block(
    "TLS: `security` of a server",
    (
        Key("ssl-ca", text("path", checks.not_empty), "Certificates (PEM) of the authorities that may have "
            "issued the server's.", shown="those of the system"),
        Key("ssl-cert", text("path", checks.not_empty), "Certificate (PEM) that the server is shown; with `ssl-key`."),
        Key("ssl-key", text("path", checks.not_empty), "Private key (PEM) of `ssl-cert`, without a password."),
        Key("cert-allowed-cn", texts(text("text", checks.not_empty)), "The server's certificate must have one of "
            "these common names; its host name is then not asked for.", ()),
        Key("verify", choice(words(Verify)), "How much of the server's certificate is looked at: `full` its authority "
            "and host name, `ca` its authority, `none` nothing.", shown="`full` with `ssl-ca`, `ca` with "
            "`cert-allowed-cn`, else `none`"),
        *(Refused(f"ssl-{what}-{encoding}", BYTES.format(f"ssl-{what}")) for what in ("ca", "cert", "key")
          for encoding in ENCODINGS),
    ),
)  # fmt: skip

SERVER = Block(
    "Server: `target-database` of the task file, `from` of a source file",
    (
        Key("host", text("text", checks.not_empty), "Name or address; required without `conn-id`."),
        Key("port", integer(1, LAST_PORT), "TCP port.", shown="that of `conn-id`, else `3306`"),
        Key("user", text("text", checks.not_empty), "User name; required without `conn-id`."),
        Key("conn-id", text("text", checks.connection_id, shown=False),
            "Airflow Connection with host, port, login and password; keys given beside it win. "
            "The command line reads it from the environment variable `AIRFLOW_CONN_<ID>`."),
        Key("password-env", text("text", checks.environment_name, shown=False),
            "Environment variable that holds the password."),
        Key("password-file", text("path", checks.not_empty), "File that holds the password, as Docker and Kubernetes "
            "mount secrets; line ends behind it do not count."),
        Key("password", secret(), "The password itself: works, with a warning on every start.", shown="empty"),
        Key("session", variables(OWN_VARIABLES, IDLE_VARIABLES),
            "Session variables of every connection to this server. Those on which values depend are unshard's own: "
            "they are refused, or (`sql_mode` and `foreign_key_checks`, which DM's files have) have no effect and a "
            "warning.", ()),
        Key("security", nested(SECURITY), "TLS, see below; without it TLS is used if the server offers it, and its "
            "certificate is not looked at."),
        Ignored("max-allowed-packet", "the server says how large a packet may be"),
    ),
)  # fmt: skip

PURGE_BLOCK = tuple(Ignored(name, PURGE) for name in ("interval", "expires", "remain-space"))
CHECKER_NAMES = ("check-enable", "backoff-rollback", "backoff-max", "backoff-min", "backoff-jitter", "backoff-factor",
                 "check-interval")  # fmt: skip

SOURCE = Block(
    "Source file",
    (
        Key("source-id", text("text", checks.source_id), "The id that instances refer to, at most 32 characters.",
            required=True),
        Key("from", nested(SERVER), "The server, see below.", required=True),
        Key("server-id", integer(0, LAST_SERVER_ID), "Replica id that the relay shows the server; no other replica "
            "may have it. 0: derived from task and source id.", 0),
        Key("flavor", choice(words(Flavor)), "Make of the server.", Flavor.DETECT, shown="detected"),
        Key("enable", boolean(), "A task that uses a disabled source is refused.", True),
        Key("case-sensitive", boolean(), "Match names of this source case-sensitively, as if the task said so.",
            False),
        Key("filters", blocks(EVENT_FILTER), "Binlog event filters for every task, behind the task's own.", ()),
        Key("purge", nested(Block("Purge of the relay log", PURGE_BLOCK)), "DM's rules for old relay files: no effect, "
            f"{PURGE}."),
        Key("checker", nested(Block("Automatic resuming", tuple(Ignored(name, RETRY) for name in CHECKER_NAMES))),
            f"DM's automatic resuming: no effect, {RETRY}."),
        Ignored("enable-gtid", BY_GTID, ("false",)),
        Ignored("online-ddl", "the task file says it", ("true",)),
        Ignored("online-ddl-scheme", "gh-ost and pt-online-schema-change are both followed"),
        Ignored("enable-relay", RELAY, ("true",)),
        Ignored("relay-dir", RELAY),
        Ignored("meta-dir", RELAY),
        Ignored("relay-binlog-name", "the relay begins where the task begins"),
        Ignored("relay-binlog-gtid", "the relay begins where the task begins"),
        Ignored("auto-fix-gtid", "DM itself has given it up"),
        Ignored("charset", "DM itself has given it up"),
        Ignored("tracer", "DM itself has given it up"),
    ),
)  # fmt: skip
