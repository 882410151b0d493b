"""US-1xxx: task and source files, the secrets that they name, routes and lists, and the command line.

`place` is always `file:line path.to.key`. No error contains a value that could be a secret.
"""

from unshard.errors.base import ConfigError, PlaceError, UnshardError


class UnknownKey(PlaceError, code="US-1001"):
    key: str
    allowed: str
    suggestion: str
    """Empty, or the key that was probably meant."""
    template = "{place}: unknown key '{key}'{suggestion}"
    hint = "allowed here: {allowed}"


class FileUnreadable(ConfigError, code="US-1002"):
    path: str
    reason: str
    template = "{path}: the file cannot be read: {reason}"
    hint = "check the path and its permissions; source files are in sources/ next to the task file"


class YamlInvalid(PlaceError, code="US-1003"):
    reason: str
    template = "{place}: invalid YAML: {reason}"
    hint = "check the indentation, and quote texts that begin with one of * & ! % @ ~ or contain ': ' or ' #'"


class FileEmpty(ConfigError, code="US-1004"):
    path: str
    template = "{path}: the file is empty"
    hint = "docs/config.md lists the keys; include/tasks has an example"


class KeyTwice(PlaceError, code="US-1005"):
    key: str
    first_line: int
    template = "{place}: key '{key}' is repeated, first in line {first_line}"
    hint = "remove one of the two"


class WrongType(PlaceError, code="US-1006"):
    wanted: str
    given: str
    template = "{place}: {given} instead of {wanted}"
    hint = "docs/config.md shows the type of every key"


class BadValue(PlaceError, code="US-1007"):
    value: str
    wanted: str
    template = "{place}: '{value}' is not {wanted}"
    hint = "correct the value; docs/config.md describes every key"


class MissingKey(PlaceError, code="US-1008"):
    key: str
    about: str
    template = "{place}: key '{key}' is missing"
    hint = "add it: {about}"


class LaterKey(PlaceError, code="US-1009"):
    key: str
    feature: str
    template = "{place}: '{key}' asks for {feature}, which this version of unshard does not have yet"
    hint = "remove it if the task is right without it; a later version adds it"


class UnusedBlock(PlaceError, code="US-1010"):
    name: str
    reference: str
    template = "{place}: nothing refers to '{name}'"
    hint = "name it in {reference} of an instance, or remove it"


class UnknownBlock(PlaceError, code="US-1011"):
    name: str
    block: str
    defined: str
    template = "{place}: '{name}' is not defined in {block}"
    hint = "defined there: {defined}"


class RuleTwice(PlaceError, code="US-1012"):
    name: str
    template = "{place}: rule '{name}' is named twice"
    hint = "remove one of the two"


class KeysExclude(PlaceError, code="US-1013"):
    first: str
    second: str
    template = "{place}: '{first}' and '{second}' exclude each other"
    hint = "keep one of the two"


class SourceTwice(PlaceError, code="US-1014"):
    source: str
    first: str
    template = "{place}: source '{source}' is already in {first}"
    hint = "give every source its own id and its own instance"


class SourceUnknown(PlaceError, code="US-1015"):
    source: str
    files: str
    template = "{place}: no source file has source-id '{source}'; read: {files}"
    hint = "add sources/{source}.yaml next to the task file, or list the file in unshard.sources"


class SourceDisabled(PlaceError, code="US-1016"):
    source: str
    file: str
    template = "{place}: source '{source}' is disabled in {file}"
    hint = "set 'enable: true' there, or remove the instance"


class ConnectionUnknown(ConfigError, code="US-1017"):
    conn_id: str
    variable: str
    template = "connection '{conn_id}' is not defined"
    hint = "define it in Airflow, or set the environment variable {variable} to its URI or JSON"


class ConnectionInvalid(ConfigError, code="US-1018"):
    conn_id: str
    reason: str
    template = "connection '{conn_id}' cannot be used: {reason}"
    hint = (
        "a URI looks like mysql://user:password@host:3306, with special characters as %XX;"
        " JSON has login, password, host and port"
    )


class PasswordVariableUnset(ConfigError, code="US-1019"):
    variable: str
    server: str
    template = "environment variable {variable} with the password of {server} is not set"
    hint = "set it where the task runs: in the shell of the command line, or for Airflow's workers"


class PatternInvalid(ConfigError, code="US-1020"):
    rule: str
    pattern: str
    reason: str
    template = "{rule}: pattern '{pattern}': {reason}"
    hint = "wildcards are * ? [a-c] [!x]; a pattern that begins with ~ is a regular expression"


class RouteAmbiguous(ConfigError, code="US-1021"):
    table: str
    first: str
    first_target: str
    second: str
    second_target: str
    template = "{table} matches route '{first}' to {first_target} and route '{second}' to {second_target}"
    hint = "narrow the patterns of one of the two; a rule with table-pattern takes precedence over one without"


class SourceNotInTask(ConfigError, code="US-1022"):
    task: str
    source: str
    sources: str
    template = "task {task} has no source '{source}'"
    hint = "its sources: {sources}"


class ExtractionNotFound(ConfigError, code="US-1023"):
    rule: str
    shard: str
    origin: str
    text: str
    expression: str
    template = "route '{rule}' finds nothing to extract from the {origin} '{text}' of {shard} with '{expression}'"
    hint = "correct the {origin}-regexp, or narrow the patterns of the rule to the intended tables"


class KeyRefused(PlaceError, code="US-1024"):
    key: str
    instead: str
    template = "{place}: '{key}' is a key of DM that unshard does not use"
    hint = "{instead}"


class SecretUnreadable(ConfigError, code="US-1025"):
    path: str
    what: str
    reason: str
    template = "{path}: the {what} cannot be read: {reason}"
    hint = "check the permissions and the path; it is relative to the folder of the task or source file that names it"


class CertificateInvalid(ConfigError, code="US-1026"):
    reason: str
    template = "the certificates of a security block cannot be used: {reason}"
    hint = "all three must be PEM files, the key must belong to the certificate and must not have a password"


class MappingNameUnfit(ConfigError, code="US-1027"):
    rule: str
    shard: str
    name: str
    head: str
    largest: int
    template = "column mapping '{rule}' finds no number from 0 to {largest} after '{head}' in '{name}' of shard {shard}"
    hint = "correct the arguments of the rule, or its patterns so that it does not match this table"


class MappingAmbiguous(ConfigError, code="US-1028"):
    shard: str
    column: str
    first: str
    second: str
    template = "column '{column}' of shard {shard} is changed by column mapping '{first}' and by '{second}'"
    hint = (
        "make one of them match fewer tables, or give it a table-pattern: such a rule takes precedence over one without"
    )


class ShardingContradicted(PlaceError, code="US-1030"):
    mode: str
    template = "{place}: 'is-sharding' contradicts shard-mode '{mode}'"
    hint = "remove is-sharding and keep shard-mode, as DM demands"


class StartUnset(PlaceError, code="US-1031"):
    source: str
    template = "{place} has no position, so it is unknown where source {source} begins"
    hint = "use `unshard run --start-time TIME`, write binlog-name or binlog-gtid, or remove meta to begin now"


class NotAllowed(ConfigError, code="US-1040"):
    what: str
    value: str
    allowed: str
    variable: str
    template = "a task file may not name this {what}: {value}"
    hint = "allowed: {allowed}; the environment variable {variable} of the processes that run unshard has the list"


class SeveralErrors(ConfigError, code="US-1050"):
    errors: tuple[UnshardError, ...]
    template = "{count} errors:\n{listed}\n"
    hint = "correct them all, then check again: others may follow"

    @property
    def message(self) -> str:
        """The errors, one in a line."""
        return self.template.format(count=len(self.errors), listed="\n".join(map(str, self.errors)))


class UsageWrong(ConfigError, code="US-1901"):
    problem: str
    command: str
    template = "{problem}"
    hint = "`{command} --help` shows the usage"


class NotConfirmed(ConfigError, code="US-1902"):
    question: str
    template = "nothing was done: {question} was not confirmed"
    hint = "answer `yes`, or use --yes if the input is not a terminal"
