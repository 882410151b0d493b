"""US-1xxx: task and source files, the secrets they name, routes and lists.

`place` is always `file:line path.to.key`. No error carries a value that could be a secret.
"""

from dataclasses import dataclass

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class ConfigError(UnshardError):
    """A task or source file says something that cannot be done."""

    scope = Scope.CONFIG


@dataclass(eq=False)
class UnknownKey(ConfigError):
    """A key that no declaration knows; `suggestion` is empty or says what was probably meant."""

    place: str
    key: str
    allowed: str
    suggestion: str

    code = "US-1001"
    template = "{place}: unknown key '{key}'{suggestion}"
    hint = "allowed here: {allowed}"


@dataclass(eq=False)
class FileUnreadable(ConfigError):
    """A task or source file is missing, no file, not readable or not UTF-8."""

    path: str
    reason: str

    code = "US-1002"
    template = "{path}: the file cannot be read: {reason}"
    hint = "check the path and its permissions; source files are sought in sources/ beside the task file"


@dataclass(eq=False)
class YamlInvalid(ConfigError):
    """The text is no YAML, or uses YAML that has no place in these files."""

    place: str
    reason: str

    code = "US-1003"
    template = "{place}: invalid YAML: {reason}"
    hint = "mind indentation, and quote texts that begin with one of * & ! % @ ~ or hold ': ' or ' #'"


@dataclass(eq=False)
class FileEmpty(ConfigError):
    """A task or source file without a single key."""

    path: str

    code = "US-1004"
    template = "{path}: the file is empty"
    hint = "docs/config.md lists the keys; include/tasks has an example"


@dataclass(eq=False)
class KeyTwice(ConfigError):
    """YAML would let the last one win in silence."""

    place: str
    key: str
    first_line: int

    code = "US-1005"
    template = "{place}: key '{key}' stands here for the second time, first in line {first_line}"
    hint = "remove one of the two"


@dataclass(eq=False)
class WrongType(ConfigError):
    """A list where a text belongs, and the like."""

    place: str
    wanted: str
    given: str

    code = "US-1006"
    template = "{place}: {given} instead of {wanted}"
    hint = "docs/config.md shows the type of every key"


@dataclass(eq=False)
class BadValue(ConfigError):
    """The type is right, the value is not."""

    place: str
    value: str
    wanted: str

    code = "US-1007"
    template = "{place}: '{value}' is not {wanted}"
    hint = "correct the value; docs/config.md describes every key"


@dataclass(eq=False)
class MissingKey(ConfigError):
    """A key without default is not given."""

    place: str
    key: str
    about: str

    code = "US-1008"
    template = "{place}: key '{key}' is missing"
    hint = "add it: {about}"


@dataclass(eq=False)
class LaterKey(ConfigError):
    """A key or value of DM that this version does not carry out, so it must not pass in silence."""

    place: str
    key: str
    feature: str

    code = "US-1009"
    template = "{place}: '{key}' asks for {feature}, which this version of unshard does not have yet"
    hint = "remove it if the task is right without; a later version brings it"


@dataclass(eq=False)
class UnusedBlock(ConfigError):
    """A named block that no instance refers to: most often a forgotten reference."""

    place: str
    name: str
    reference: str

    code = "US-1010"
    template = "{place}: nothing refers to '{name}'"
    hint = "name it in {reference} of an instance, or remove it"


@dataclass(eq=False)
class UnknownBlock(ConfigError):
    """A reference to a named block that does not exist."""

    place: str
    name: str
    block: str
    defined: str

    code = "US-1011"
    template = "{place}: '{name}' is not defined in {block}"
    hint = "defined there: {defined}"


@dataclass(eq=False)
class RuleTwice(ConfigError):
    """One instance names the same rule twice."""

    place: str
    name: str

    code = "US-1012"
    template = "{place}: rule '{name}' is named twice"
    hint = "remove one of the two"


@dataclass(eq=False)
class KeysExclude(ConfigError):
    """Two keys that say the same thing in different ways."""

    place: str
    first: str
    second: str

    code = "US-1013"
    template = "{place}: '{first}' and '{second}' exclude each other"
    hint = "keep one of the two"


@dataclass(eq=False)
class SourceTwice(ConfigError):
    """A source may have one instance in a task, and an id one source file."""

    place: str
    source: str
    first: str

    code = "US-1014"
    template = "{place}: source '{source}' stands already in {first}"
    hint = "give every source its own id and its own instance"


@dataclass(eq=False)
class SourceUnknown(ConfigError):
    """An instance names a source that no source file describes."""

    place: str
    source: str
    files: str

    code = "US-1015"
    template = "{place}: no source file has source-id '{source}'; looked at: {files}"
    hint = "add sources/{source}.yaml beside the task file, or list the file in unshard.sources"


@dataclass(eq=False)
class SourceDisabled(ConfigError):
    """An instance uses a source whose file says `enable: false`."""

    place: str
    source: str
    file: str

    code = "US-1016"
    template = "{place}: source '{source}' is disabled in {file}"
    hint = "set 'enable: true' there, or remove the instance"


@dataclass(eq=False)
class ConnectionUnknown(ConfigError):
    """No connection has this id."""

    conn_id: str
    variable: str

    code = "US-1017"
    template = "connection '{conn_id}' is not defined"
    hint = "define it in Airflow, or set the environment variable {variable} to its URI or JSON"


@dataclass(eq=False)
class ConnectionInvalid(ConfigError):
    """A connection exists but cannot be used."""

    conn_id: str
    reason: str

    code = "US-1018"
    template = "connection '{conn_id}' cannot be used: {reason}"
    hint = "a URI looks like mysql://user:password@host:3306, special characters as %XX; JSON has login, password, host and port"  # noqa: E501


@dataclass(eq=False)
class PasswordVariableUnset(ConfigError):
    """`password-env` names an environment variable that does not exist."""

    variable: str
    server: str

    code = "US-1019"
    template = "environment variable {variable} with the password of {server} is not set"
    hint = "set it where the task runs: the shell, or Airflow's workers"


@dataclass(eq=False)
class PatternInvalid(ConfigError):
    """A pattern of a route or list that cannot be compiled, or surely means something else."""

    rule: str
    pattern: str
    reason: str

    code = "US-1020"
    template = "{rule}: pattern '{pattern}': {reason}"
    hint = "wildcards are * ? [a-c] [!x]; a pattern that begins with ~ is a regular expression"


@dataclass(eq=False)
class RouteAmbiguous(ConfigError):
    """Two rules of the same level send one table, or one schema, to different places."""

    table: str
    first: str
    first_target: str
    second: str
    second_target: str

    code = "US-1021"
    template = "{table} matches route '{first}' to {first_target} and route '{second}' to {second_target}"
    hint = "narrow the patterns of one of the two; a rule with table-pattern beats one without"


@dataclass(eq=False)
class SourceNotInTask(ConfigError):
    """Somebody asks for a source that the task does not have."""

    task: str
    source: str
    sources: str

    code = "US-1022"
    template = "task {task} has no source '{source}'"
    hint = "its sources: {sources}"


@dataclass(eq=False)
class ExtractionNotFound(ConfigError):
    """The regular expression of an extractor does not match a shard that its rule routes."""

    rule: str
    shard: str
    origin: str
    text: str
    expression: str

    code = "US-1023"
    template = "route '{rule}' finds nothing to extract from the {origin} '{text}' of {shard} with '{expression}'"
    hint = "correct the {origin}-regexp, or narrow the patterns of the rule to the tables that it is for"


@dataclass(eq=False)
class KeyRefused(ConfigError):
    """A key of DM's that asks for something which is done otherwise here."""

    place: str
    key: str
    instead: str

    code = "US-1024"
    template = "{place}: '{key}' is DM's and not known here"
    hint = "{instead}"


@dataclass(eq=False)
class SecretUnreadable(ConfigError):
    """A file that holds a password, certificate or key cannot be read."""

    path: str
    what: str
    reason: str

    code = "US-1025"
    template = "{path}: the {what} cannot be read: {reason}"
    hint = "check the path, which begins at the folder of the file that names it, and its permissions"


@dataclass(eq=False)
class CertificateInvalid(ConfigError):
    """A certificate or key of the task's files is not what it should be."""

    reason: str

    code = "US-1026"
    template = "the certificates of a security block cannot be used: {reason}"
    hint = "all three are PEM files, the key belongs to the certificate and has no password of its own"


@dataclass(eq=False)
class MappingNameUnfit(ConfigError):
    """A column mapping cannot make a number of a shard's name."""

    rule: str
    shard: str
    name: str
    head: str
    largest: int

    code = "US-1027"
    template = (
        "column mapping '{rule}' finds no number from 0 to {largest} behind '{head}' in '{name}' of shard {shard}"
    )
    hint = "correct the arguments of the rule, or its patterns so that it does not match this table"


@dataclass(eq=False)
class MappingAmbiguous(ConfigError):
    """Two column mappings of one level change the same column of a shard."""

    shard: str
    column: str
    first: str
    second: str

    code = "US-1028"
    template = "column '{column}' of shard {shard} is changed by column mapping '{first}' and by '{second}'"
    hint = "make one of them match fewer tables, or give it a table-pattern: such a rule beats one without"


# --- US-19xx command line ---------------------------------------------------------------------------


@dataclass(eq=False)
class UsageWrong(ConfigError):
    """The command line cannot be understood."""

    words: str
    command: str

    code = "US-1901"
    template = "{words}"
    hint = "`{command} --help` shows what is possible"


@dataclass(eq=False)
class NotConfirmed(ConfigError):
    """An operator was asked and did not say yes."""

    question: str

    code = "US-1902"
    template = "nothing was done: {question} was not confirmed"
    hint = "answer `yes`, or give --yes where nobody can answer"
