"""US-1xxx: task and source files, the secrets that they name, routes and lists, and the command line.

`place` is always `file:line path.to.key`. No error contains a value that could be a secret.
"""

from unshard.errors.base import ConfigError, UnshardError


class UnknownKey(ConfigError, code="US-1001"):
    """A task or source file has a key that does not exist, usually misspelt or in the wrong block.

    Remedy: Correct or remove the key. The message lists the allowed keys and suggests a similar one;
    `docs/config.md` lists all keys.
    """

    place: str
    key: str
    allowed: str
    suggestion: str
    """Empty, or the key that was probably meant."""
    template = "{place}: unknown key '{key}'{suggestion}"
    hint = "allowed here: {allowed}"


class FileUnreadable(ConfigError, code="US-1002"):
    """A task or source file does not exist, is a directory, is not readable, or is not UTF-8.

    Remedy: Check the path and its permissions. unshard looks for source files in `sources/` next to the task file,
    or where `unshard.sources` says.
    """

    path: str
    reason: str
    template = "{path}: the file cannot be read: {reason}"
    hint = "check the path and its permissions; source files are in sources/ next to the task file"


class YamlInvalid(ConfigError, code="US-1003"):
    """The file is not valid YAML, or uses a YAML feature that these files do not allow.

    Usually the indentation is wrong, a line contains a tab, or a text that begins with `*`, `&`, `!`, `%` or `@` is not
    quoted. The message never quotes the line, because it could contain a password.
    """

    place: str
    reason: str
    template = "{place}: invalid YAML: {reason}"
    hint = "check the indentation, and quote texts that begin with one of * & ! % @ ~ or contain ': ' or ' #'"


class FileEmpty(ConfigError, code="US-1004"):
    """A task or source file has no key.

    Remedy: Write the task or the source into the file, or remove a source file that no task needs.
    """

    path: str
    template = "{path}: the file is empty"
    hint = "docs/config.md lists the keys; include/tasks has an example"


class KeyTwice(ConfigError, code="US-1005"):
    """A mapping has the same key twice. A YAML parser would silently use the last one. The message names both lines."""

    place: str
    key: str
    first_line: int
    template = "{place}: key '{key}' is repeated, first in line {first_line}"
    hint = "remove one of the two"


class WrongType(ConfigError, code="US-1006"):
    """A value is a list, a mapping or a single value where the key needs another of these."""

    place: str
    wanted: str
    given: str
    template = "{place}: {given} instead of {wanted}"
    hint = "docs/config.md shows the type of every key"


class BadValue(ConfigError, code="US-1007"):
    """The value has the right type but is not allowed: a number out of range, an unknown word, an unknown time zone.

    The message says what the key accepts.
    """

    place: str
    value: str
    wanted: str
    template = "{place}: '{value}' is not {wanted}"
    hint = "correct the value; docs/config.md describes every key"


class MissingKey(ConfigError, code="US-1008"):
    """A required key is missing or has no value.

    Remedy: Add the key. The message says what it is for.
    """

    place: str
    key: str
    about: str
    template = "{place}: key '{key}' is missing"
    hint = "add it: {about}"


class LaterKey(ConfigError, code="US-1009"):
    """The file uses a feature of DM that this version of unshard does not have.

    unshard rejects the key, because it does not ignore a setting silently.

    Remedy: Remove the key if the task is right without it. `docs/config.md` lists these keys and the values that
    unshard accepts.
    """

    place: str
    key: str
    feature: str
    template = "{place}: '{key}' asks for {feature}, which this version of unshard does not have yet"
    hint = "remove it if the task is right without it; a later version adds it"


class UnusedBlock(ConfigError, code="US-1010"):
    """A route, filter, mapping or settings block is defined, but no instance refers to it.

    Usually the reference is forgotten. DM rejects such a block too. A block-allow list without a reference causes a
    warning only, as in DM.
    """

    place: str
    name: str
    reference: str
    template = "{place}: nothing refers to '{name}'"
    hint = "name it in {reference} of an instance, or remove it"


class UnknownBlock(ConfigError, code="US-1011"):
    """An instance refers to a block that is not defined or has a different spelling.

    Remedy: Correct the name or define the block. The message lists the defined blocks.
    """

    place: str
    name: str
    block: str
    defined: str
    template = "{place}: '{name}' is not defined in {block}"
    hint = "defined there: {defined}"


class RuleTwice(ConfigError, code="US-1012"):
    """An instance names the same rule twice."""

    place: str
    name: str
    template = "{place}: rule '{name}' is named twice"
    hint = "remove one of the two"


class KeysExclude(ConfigError, code="US-1013"):
    """Two keys set the same thing, such as `password` and `conn-id`, or a block's name and the block itself."""

    place: str
    first: str
    second: str
    template = "{place}: '{first}' and '{second}' exclude each other"
    hint = "keep one of the two"


class SourceTwice(ConfigError, code="US-1014"):
    """A source has two instances in the task, or two source files have the same `source-id`.

    The usual reason is a copied source file.
    """

    place: str
    source: str
    first: str
    template = "{place}: source '{source}' is already in {first}"
    hint = "give every source its own id and its own instance"


class SourceUnknown(ConfigError, code="US-1015"):
    """No source file has the id that an instance names. The message lists the files that unshard read."""

    place: str
    source: str
    files: str
    template = "{place}: no source file has source-id '{source}'; read: {files}"
    hint = "add sources/{source}.yaml next to the task file, or list the file in unshard.sources"


class SourceDisabled(ConfigError, code="US-1016"):
    """An instance uses a source whose file has `enable: false`."""

    place: str
    source: str
    file: str
    template = "{place}: source '{source}' is disabled in {file}"
    hint = "set 'enable: true' there, or remove the instance"


class ConnectionUnknown(ConfigError, code="US-1017"):
    """`conn-id` names a connection that does not exist in Airflow or, for the command line, in the environment."""

    conn_id: str
    variable: str
    template = "connection '{conn_id}' is not defined"
    hint = "define it in Airflow, or set the environment variable {variable} to its URI or JSON"


class ConnectionInvalid(ConfigError, code="US-1018"):
    """The connection exists but is not usable.

    It is neither JSON nor a URI, has no host or login, has an invalid port, or asks for TLS. The message never quotes
    the connection.
    """

    conn_id: str
    reason: str
    template = "connection '{conn_id}' cannot be used: {reason}"
    hint = (
        "a URI looks like mysql://user:password@host:3306, with special characters as %XX;"
        " JSON has login, password, host and port"
    )


class PasswordVariableUnset(ConfigError, code="US-1019"):
    """`password-env` names an environment variable that is not set where the task runs."""

    variable: str
    server: str
    template = "environment variable {variable} with the password of {server} is not set"
    hint = "set it where the task runs: in the shell of the command line, or for Airflow's workers"


class PatternInvalid(ConfigError, code="US-1020"):
    """A pattern of a route or list is not valid, or cannot have the intended meaning.

    For example, `orders_[0-63]` matches one character, not a number from 0 to 63. `docs/config.md` describes patterns.
    """

    rule: str
    pattern: str
    reason: str
    template = "{rule}: pattern '{pattern}': {reason}"
    hint = "wildcards are * ? [a-c] [!x]; a pattern that begins with ~ is a regular expression"


class RouteAmbiguous(ConfigError, code="US-1021"):
    """A table or schema matches two routes of the same level that send it to different targets.

    DM would silently replicate such a table under its own name.
    """

    table: str
    first: str
    first_target: str
    second: str
    second_target: str
    template = "{table} matches route '{first}' to {first_target} and route '{second}' to {second_target}"
    hint = "narrow the patterns of one of the two; a rule with table-pattern takes precedence over one without"


class SourceNotInTask(ConfigError, code="US-1022"):
    """A command or an Airflow task names a source that the task file does not have, or no longer has."""

    task: str
    source: str
    sources: str
    template = "task {task} has no source '{source}'"
    hint = "its sources: {sources}"


class ExtractionNotFound(ConfigError, code="US-1023"):
    """A route extracts a value from the name of a shard, but its regular expression does not match the name.

    DM would write an empty text, and rows of two shards could get the same key.

    Remedy: Correct the expression, or narrow the route's patterns to the intended tables. The expression may match
    anywhere in the name.
    """

    rule: str
    shard: str
    origin: str
    text: str
    expression: str
    template = "route '{rule}' finds nothing to extract from the {origin} '{text}' of {shard} with '{expression}'"
    hint = "correct the {origin}-regexp, or narrow the patterns of the rule to the intended tables"


class KeyRefused(ConfigError, code="US-1024"):
    """The key is DM's, and unshard has a different way to do this.

    Remedy: Follow the message and remove the key. `docs/config.md` lists these keys.
    """

    place: str
    key: str
    instead: str
    template = "{place}: '{key}' is a key of DM that unshard does not use"
    hint = "{instead}"


class SecretUnreadable(ConfigError, code="US-1025"):
    """A file with a password, certificate or key does not exist, is not readable, or is not text.

    unshard reads these files where it opens the task, not on executors.
    """

    path: str
    what: str
    reason: str
    template = "{path}: the {what} cannot be read: {reason}"
    hint = "check the permissions and the path; it is relative to the folder of the task or source file that names it"


class CertificateInvalid(ConfigError, code="US-1026"):
    """A certificate or key is not valid.

    `ssl-ca`, `ssl-cert` or `ssl-key` is not PEM, the key does not belong to the certificate, or the key has a password.

    Remedy: Correct the file. `openssl x509 -in FILE -noout -subject` and `openssl pkey -in FILE -noout` show what a
    file is.
    """

    reason: str
    template = "the certificates of a security block cannot be used: {reason}"
    hint = "all three must be PEM files, the key must belong to the certificate and must not have a password"


class MappingNameUnfit(ConfigError, code="US-1027"):
    """`partition id` cannot make a number from the schema or table name of a shard.

    After the argument and the separator there is no number, or the number does not fit into its bits (schema 127,
    table 255).
    """

    rule: str
    shard: str
    name: str
    head: str
    largest: int
    template = "column mapping '{rule}' finds no number from 0 to {largest} after '{head}' in '{name}' of shard {shard}"
    hint = "correct the arguments of the rule, or its patterns so that it does not match this table"


class MappingAmbiguous(ConfigError, code="US-1028"):
    """Two rules of `column-mappings` of the same level match a shard and change the same column."""

    shard: str
    column: str
    first: str
    second: str
    template = "column '{column}' of shard {shard} is changed by column mapping '{first}' and by '{second}'"
    hint = (
        "make one of them match fewer tables, or give it a table-pattern: such a rule takes precedence over one without"
    )


class ShardingContradicted(ConfigError, code="US-1030"):
    """`is-sharding` and `shard-mode` contradict each other: `false` with a mode, or `true` with an empty mode.

    DM's `dmctl` rejects the same two combinations.

    Remedy: Remove `is-sharding`, which is DM's old switch. unshard coordinates the DDLs of shards in any case.
    """

    place: str
    mode: str
    template = "{place}: 'is-sharding' contradicts shard-mode '{mode}'"
    hint = "remove is-sharding and keep shard-mode, as DM demands"


class StartUnset(ConfigError, code="US-1031"):
    """`meta` of an instance has neither a binlog file nor GTIDs, and the task is new and has no start time.

    DM's files have such a `meta` for tasks that are started with a start time.

    Remedy: Start the task with a start time, or write a position into `meta`. Without `meta` the task begins at the
    present end of the binlog.
    """

    place: str
    source: str
    template = "{place} has no position, so it is unknown where source {source} begins"
    hint = "use `unshard run --start-time TIME`, write binlog-name or binlog-gtid, or remove meta to begin now"


class NotAllowed(ConfigError, code="US-1040"):
    """A task or source file names a file, an environment variable or an address of Spark that task files may not use.

    Otherwise the author of a task file could send any secret of the process to a server. `docs/config.md` lists what is
    allowed by default.

    Remedy: Use an Airflow connection, move the secret, or add the value to the variable that the message names, on
    every machine that runs unshard.
    """

    what: str
    value: str
    allowed: str
    variable: str
    template = "a task file may not name this {what}: {value}"
    hint = "allowed: {allowed}; the environment variable {variable} of the processes that run unshard has the list"


class SeveralErrors(ConfigError, code="US-1050"):
    """A task file, with its source files, has several errors. The message lists them, one in a line with its own code.

    Remedy: Correct them all. Errors that follow from these, or that involve several keys, may be found only then.
    """

    errors: tuple[UnshardError, ...]
    template = "{count} errors:\n{listed}\n"
    hint = "correct them all, then check again: others may follow"

    @property
    def message(self) -> str:
        """The errors, one in a line."""
        return self.template.format(count=len(self.errors), listed="\n".join(map(str, self.errors)))


class UsageWrong(ConfigError, code="US-1901"):
    """The command, an argument or an option is unknown or missing.

    Remedy: `unshard --help` lists the commands, `unshard COMMAND --help` the arguments of a command.
    """

    problem: str
    command: str
    template = "{problem}"
    hint = "`{command} --help` shows the usage"


class NotConfirmed(ConfigError, code="US-1902"):
    """A command asks for confirmation, and the answer was not `yes` or the input is not a terminal.

    Consequence: Nothing is done.
    Remedy: Answer `yes`. Use `--yes` in scripts, and `--dry-run` to see the effect only.
    """

    question: str
    template = "nothing was done: {question} was not confirmed"
    hint = "answer `yes`, or use --yes if the input is not a terminal"
