"""US-7xxx: meta tables, storage and Spark."""

from dataclasses import dataclass

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class MetaError(UnshardError):
    """unshard's own state or machinery is not as it must be."""

    scope = Scope.DOWNSTREAM


# --- US-71xx storage, US-72xx Spark ---------------------------------------------------------------


@dataclass(eq=False)
class StorageFailed(MetaError):
    """The storage path refuses a read or a write."""

    action: str
    path: str
    reason: str

    code = "US-7101"
    transient = True
    template = "cannot {action} {path}: {reason}"
    hint = (
        "check that the storage path exists, has room and is reachable by every Spark worker under the same name; of an"
        " object store: bucket, credentials, endpoint, and room for temporary files"
    )


@dataclass(eq=False)
class StoredFileMissing(MetaError):
    """A file that a committed row names is gone."""

    path: str

    code = "US-7102"
    template = "stored file {path} is missing"
    hint = "point the task's storage at the place where its files are, or load the source from the start"


@dataclass(eq=False)
class StoredFileDamaged(MetaError):
    """A stored file cannot be read as what was written."""

    path: str
    reason: str

    code = "US-7103"
    template = "stored file {path} is damaged: {reason}"
    hint = "restore the file, or load the source from the start"


@dataclass(eq=False)
class UnknownSparkConnection(MetaError):
    """The connection text names no kind of Spark that we know."""

    scope = Scope.CONFIG
    connection: str

    code = "US-7201"
    template = "cannot tell what kind of Spark {connection} is"
    hint = "use local[n], spark://host:port, yarn, k8s://… or sc://host:port"


@dataclass(eq=False)
class SparkUnavailable(MetaError):
    """No session can be had."""

    connection: str
    reason: str

    code = "US-7202"
    transient = True
    template = "no Spark session at {connection}: {reason}"
    hint = "check that the server runs and that its Spark and Python versions are those of requirements.txt"


@dataclass(eq=False)
class SparkJobFailed(MetaError):
    """Spark ended a job for a reason of its own."""

    reason: str

    code = "US-7203"
    transient = True
    template = "the Spark job failed: {reason}"
    hint = "see the log of the Spark application; the step can be repeated"


@dataclass(eq=False)
class SparkTaskCrashed(MetaError):
    """Our code raised in an executor what it does not raise on purpose."""

    scope = Scope.INTERNAL
    reason: str

    code = "US-7204"
    template = "a task crashed in a Spark worker: {reason}"
    hint = "this is a defect: report it with the traceback in the notes of this error"


# --- US-70xx meta tables --------------------------------------------------------------------------


@dataclass(eq=False)
class MetaMissing(MetaError):
    """The meta schema or one of its tables does not exist."""

    schema: str
    words: str

    code = "US-7001"
    template = "the meta schema {schema} is not there or incomplete: {words}"
    hint = "`unshard migrate` or the start of the task creates it; if it was dropped, load the task from the start"


@dataclass(eq=False)
class MetaTooNew(MetaError):
    """A newer unshard has migrated the meta tables."""

    schema: str
    found: int
    known: int

    code = "US-7002"
    template = "the meta schema {schema} has version {found}, this unshard knows {known}"
    hint = "use the newer unshard everywhere; the meta tables are never migrated backwards"


@dataclass(eq=False)
class MigrationBusy(MetaError):
    """Another process has been migrating the meta tables for a long time."""

    schema: str
    seconds: int

    code = "US-7003"
    transient = True
    template = "another process has been migrating the meta schema {schema} for {seconds} s"
    hint = "try again; if it stays so, look for its connection in SHOW PROCESSLIST of the target"


@dataclass(eq=False)
class FencedOut(MetaError):
    """A newer run of the same source has taken over; this writer has written nothing since."""

    source: str
    window: int
    mine: int
    found: int

    code = "US-7004"
    template = "window {window} of source {source} has epoch {mine}, but epoch {found} has taken over"
    hint = "nothing to do: the newer run goes on; let only one run of a task be active at a time"


@dataclass(eq=False)
class UnknownSource(MetaError):
    """The meta tables know no such source of the task."""

    task: str
    source: str

    code = "US-7005"
    template = "task {task} has recorded nothing about source {source} yet"
    hint = "run the full stage of the task first: it takes the snapshot of every source"


@dataclass(eq=False)
class StructureMissing(MetaError):
    """A digest names a structure that was never stored."""

    scope = Scope.INTERNAL
    digest: str

    code = "US-7006"
    template = "structure {digest} is not in the meta tables"
    hint = "restore the meta schema from the backup that goes with the target, or load the task from the start"


@dataclass(eq=False)
class MetaUnreadable(MetaError):
    """A persisted value does not fit the types of this version."""

    scope = Scope.INTERNAL
    what: str
    reason: str

    code = "US-7007"
    template = "{what} cannot be read back: {reason}"
    hint = "use the version of unshard that wrote it until its window is committed or its lock resolved"


@dataclass(eq=False)
class PhaseFellBack(MetaError):
    """A unit asked to set a source back to an earlier phase."""

    scope = Scope.INTERNAL
    source: str
    phase: str
    wanted: str

    code = "US-7008"
    template = "source {source} is in phase {phase} and cannot go back to {wanted}"
    hint = "clear the task's state to load it from the start"


@dataclass(eq=False)
class WindowMismatch(MetaError):
    """The plan to begin does not start where the checkpoint stands."""

    scope = Scope.INTERNAL
    source: str
    begins: str
    checkpoint: str

    code = "US-7009"
    transient = True
    template = "a window of source {source} was planned from {begins}, but the checkpoint stands at {checkpoint}"
    hint = "another run has committed a window meanwhile: plan again"


@dataclass(eq=False)
class NotBegun(MetaError):
    """A window is to be committed that is not open."""

    scope = Scope.INTERNAL
    source: str
    window: int

    code = "US-7010"
    template = "window {window} of source {source} is not open"
    hint = "this is a defect: report it; nothing was changed"


@dataclass(eq=False)
class MetaTooOld(MetaError):
    """The meta tables are those of an older unshard, and a command that only reads does not change them."""

    schema: str
    found: int
    known: int

    code = "US-7011"
    template = "the meta schema {schema} has version {found}, this unshard works with {known}"
    hint = "`unshard migrate` brings it to this version, as the task's next window does; older processes refuse it then"
