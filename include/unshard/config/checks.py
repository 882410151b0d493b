"""Checks of single texts: each returns None if the text is valid, else a description of a valid text."""

import re

from unshard.core.rules.routing import is_system_schema

LONGEST_TASK_NAME = 64
OFFSET = re.compile(r"([+-])(\d{1,2}):([0-5]\d)")
BINLOG_FILE = re.compile(r".+\.\d{1,18}")
MARIADB_GTIDS = re.compile(r"\d{1,10}-\d{1,10}-\d{1,20}(\s*,\s*\d{1,10}-\d{1,10}-\d{1,20})*")
MYSQL_GTIDS = re.compile(r"U(\s*,\s*U)*".replace("U", r"[0-9a-fA-F-]{36}(:[A-Za-z_]\w*|:\d{1,19}(-\d{1,19})?)+"))
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONNECTION_ID = re.compile(r"[\w.-]{1,250}")
MASTER = re.compile(r"local(\[.*\])?|yarn|(spark|sc|k8s|mesos)://.+")
SCHEMES = ("file", "s3", "hdfs", "webhdfs")
BUCKET = re.compile(r"[A-Za-z0-9][\w.-]{1,254}(/[^/?#@]+)*/?")
HDFS_FOLDER = re.compile(r"([\w.-]+@)?[\w.-]+:\d{1,5}(/[^/?#@]+)+/?")
NAME = "printable characters of at most three bytes, the last one no blank"
LAST_OF_NAMES = "\uffff"
PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
CRON_FIELDS = (
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 7, "sun mon tue wed thu fri sat"),
)


def not_empty(value: str) -> str | None:
    """Reject an empty text and blanks."""
    return None if value.strip() else "a text that is not blank"


def gtids(value: str) -> str | None:
    """Require the last GTID of each MariaDB domain, or a MySQL GTID set."""
    if not value or MARIADB_GTIDS.fullmatch(value) or MYSQL_GTIDS.fullmatch(value):
        return None
    return "GTIDs like 0-1-55 (MariaDB) or 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-55 (MySQL), with commas between"


def task_name(value: str) -> str | None:
    """The name is part of meta rows; DAG ids and folders have `Task.plain_name`."""
    is_short = 0 < len(value) <= LONGEST_TASK_NAME and max(value) <= LAST_OF_NAMES
    if is_short and value.isprintable() and value == value.strip() and "/" not in value:
        return None
    return "a task name: 1 to 64 printable characters without / and without blanks at its ends"


def source_id(value: str) -> str | None:
    """DM allows at most 32 characters. Ids become part of file names."""
    if (
        0 < len(value) <= 32
        and value.isprintable()
        and "/" not in value
        and value.strip(".")
        and value == value.strip()
    ):
        return None
    return "a source id: 1 to 32 printable characters without /"


def schema_name(value: str) -> str | None:
    """Require a valid MySQL name that is not one of the server's own schemas."""
    if not value or not _is_name(value):
        return f"a schema name: 1 to 64 {NAME}"
    return f"a schema that unshard may write to: {value} belongs to the server" if is_system_schema(value) else None


def table_name(value: str) -> str | None:
    """Require a valid MySQL name or an empty text."""
    return None if _is_name(value) else f"a table name: up to 64 {NAME}"


def _is_name(value: str) -> bool:
    """Names are utf8mb3 on the server, so they have no characters of four bytes."""
    is_short = len(value) <= 64 and max(value, default="") <= LAST_OF_NAMES
    return is_short and value.isprintable() and value == value.rstrip()


def one_group(value: str) -> str | None:
    """Require a regular expression that finds the shard's name in that of its shadow table."""
    try:
        groups = re.compile(value).groups
    except re.error as error:
        return f"a regular expression: {error}"
    return None if groups == 1 else "a regular expression with one group ( ), the shard's name"


def column_name(value: str) -> str | None:
    """Require a valid MySQL column name."""
    return table_name(value) if value.strip() else "the name of a column"


def time_zone(value: str) -> str | None:
    """Require an IANA name or an offset that MySQL accepts."""
    offset = OFFSET.fullmatch(value)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3])
        known = minutes <= (14 * 60 if offset[1] == "+" else 13 * 60 + 59)
    else:
        known = _is_zone(value)
    return None if known else "a time zone like Asia/Shanghai or +08:00 (from -13:59 to +14:00)"


def _is_zone(value: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        # A folder of the list, such as Europe, raises OSError.
        return bool(value) and ZoneInfo(value) is not None
    except (KeyError, ValueError, OSError):
        return False


def binlog_file(value: str) -> str | None:
    """Require the number at the end, which orders binlog files."""
    return None if BINLOG_FILE.fullmatch(value) else "a binlog file name like mysql-bin.000001"


def environment_name(value: str) -> str | None:
    """Require a name that a shell can set."""
    return None if ENVIRONMENT_NAME.fullmatch(value) else "the name of an environment variable"


def connection_id(value: str) -> str | None:
    """Require an Airflow id. This rejects a URI with its password."""
    return None if CONNECTION_ID.fullmatch(value) else "the id of a connection; put a URI into the connection itself"


def spark_connection(value: str) -> str | None:
    """Reject blanks; the kind of connection is determined when it is used."""
    if value and not any(character.isspace() for character in value):
        return None
    return "a Spark master (local[*], spark://, yarn, sc://host:port) or an Airflow connection id"


def is_spark_master(value: str) -> bool:
    """Tell a Spark master or Connect address from the id of an Airflow connection."""
    return MASTER.fullmatch(value) is not None


def storage_path(value: str) -> str | None:
    """Require a file system that both Spark and Arrow read."""
    scheme, separator, rest = value.partition("://")
    if value.strip() and (not separator or (scheme in SCHEMES and _is_rest(scheme, rest))):
        return None
    return (
        "a path, or a URI like file:///folder, s3://bucket/prefix or webhdfs://host:port/folder, without credentials"
        " and options"
    )


def _is_rest(scheme: str, rest: str) -> bool:
    if scheme == "s3":
        return BUCKET.fullmatch(rest) is not None
    if scheme == "webhdfs":
        return HDFS_FOLDER.fullmatch(rest) is not None
    return bool(rest.strip("/")) and (scheme != "file" or rest.startswith("/"))


def cron(value: str) -> str | None:
    """Require five fields as in crontab(5), or one of the usual names."""
    fields = value.lower().split()
    parts = ((part, bounds) for field, bounds in zip(fields, CRON_FIELDS, strict=False) for part in field.split(","))
    if value in PRESETS or (len(fields) == len(CRON_FIELDS) and all(_is_cron_part(*each) for each in parts)):
        return None
    return f"a cron expression of five fields like '*/5 * * * *', or one of {', '.join(PRESETS)}"


def _is_cron_part(part: str, bounds: tuple[int, int, str]) -> bool:
    low, high, names = bounds
    span, slash, step = part.partition("/")
    if slash and not (step.isascii() and step.isdigit() and 0 < int(step) <= high):
        return False
    if span == "*":
        return True
    numbers = [_cron_number(end, low, names) for end in span.split("-")]
    return len(numbers) <= 2 and all(low <= n <= high for n in numbers) and numbers[0] <= numbers[-1]


def _cron_number(text: str, low: int, names: str) -> int:
    if text in names.split():
        return names.split().index(text) + low
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else -1
