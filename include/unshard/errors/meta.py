"""US-7xxx: meta tables, storage path, Spark, the life of a task. US-6010 to US-6013, US-6805: fences and windows."""

from unshard.errors.base import MetaError, OneTargetError, Scope, SourceMetaError, TargetError


class MetaMissing(MetaError, code="US-7001"):
    schema: str
    server_message: str
    template = "the meta schema {schema} does not exist or is incomplete: {server_message}"
    hint = "`unshard migrate` or the start of the task creates it; if it was dropped, load the task from the start"


class MetaTooNew(MetaError, code="US-7002"):
    schema: str
    found: int
    known: int
    template = "the meta schema {schema} has version {found}, this unshard knows {known}"
    hint = "use the newer unshard everywhere"


class MetaBusy(MetaError, code="US-7003", transient=True):
    schema: str
    seconds: int
    template = "another process has been creating the meta tables in {schema} for {seconds} s"
    hint = "try again; if it repeats, look for its connection in SHOW PROCESSLIST of the target"


class UnknownSource(MetaError, code="US-7005"):
    task: str
    source: str
    template = "task {task} has recorded nothing about source {source} yet"
    hint = "run the full stage of the task first: it takes the snapshot of every source"


class StructureMissing(MetaError, code="US-7006", scope=Scope.INTERNAL):
    digest: str
    template = "structure {digest} is not in the meta tables"
    hint = "restore the meta schema from the backup that goes with the target, or load the task from the start"


class MetaUnreadable(MetaError, code="US-7007", scope=Scope.INTERNAL):
    what: str
    reason: str
    template = "{what} cannot be read back: {reason}"
    hint = "use the version of unshard that wrote it until its window is committed or its lock resolved"


class PhaseFellBack(SourceMetaError, code="US-7008", scope=Scope.INTERNAL):
    phase: str
    wanted: str
    template = "source {source} is in phase {phase} and cannot go back to {wanted}"
    hint = "clear the task's state to load it from the start"


class BackupOlder(MetaError, code="US-7020"):
    task: str
    older: str
    reason: str
    template = "task {task}: {older} is lost or older than the rest: {reason}"
    hint = (
        "restore it from the moment of the others, or all of them from one backup; else start again:"
        " `unshard stop TASK.yaml --remove-meta`, empty the target tables, `unshard run TASK.yaml`"
        " (docs/operations.md, Backups)"
    )


class MetaTooOld(MetaError, code="US-7011"):
    schema: str
    found: int
    known: int
    template = "the meta schema {schema} has version {found}, this unshard works with {known}"
    hint = (
        "version 0 is incomplete: `unshard migrate` or the task's next window completes it; otherwise use the older"
        " unshard, or remove the task's state with it (`unshard stop TASK.yaml --remove-meta`) and load the task again"
    )


class FenceMissing(OneTargetError, code="US-6010", scope=Scope.INTERNAL):
    source: str
    template = "the fence of source {source} for target table {target} is missing"
    hint = "the meta schema was changed by hand: restore it, or clear it and run the full part of the task again"


class NotInSync(TargetError, code="US-6012", scope=Scope.CONFIG):
    source: str
    phase: str
    template = "source {source} is in the phase '{phase}': it has no checkpoint from which windows could continue"
    hint = "run the full part of the task first: `unshard run TASK.yaml --until full`"


class NoProgress(TargetError, code="US-6805", scope=Scope.INTERNAL):
    source: str
    position: str
    goal: str
    template = "source {source} makes no progress at {position}, before {goal}"
    hint = "this is a defect: report it with the output of `unshard status --json` and the relay folder's index files"


class FencedOut(SourceMetaError, code="US-7004"):
    window: int
    mine: int
    found: int
    template = "window {window} of source {source} has epoch {mine}, but epoch {found} has taken over"
    hint = "nothing to do: the newer run continues; let only one run of a task be active at a time"


class WindowMismatch(SourceMetaError, code="US-7009", scope=Scope.INTERNAL, transient=True):
    begins: str
    checkpoint: str
    template = "a window of source {source} was planned from {begins}, but the checkpoint is at {checkpoint}"
    hint = "another run has committed a window meanwhile: plan again"


class NotBegun(SourceMetaError, code="US-7010", scope=Scope.INTERNAL):
    window: int
    template = "window {window} of source {source} is not open"
    hint = "this is a defect: report it; nothing was changed"


class StorageFailed(MetaError, code="US-7101", transient=True):
    action: str
    path: str
    reason: str
    template = "cannot {action} {path}: {reason}"
    hint = (
        "check that the storage path exists, has free space and is reachable by every Spark worker under the same name;"
        " for an object store check bucket, credentials, endpoint, and the space for temporary files"
    )


class StoredFileMissing(MetaError, code="US-7102"):
    path: str
    template = "stored file {path} is missing"
    hint = "set the task's storage to the path of its files, or load the source from the start"


class StoredFileDamaged(MetaError, code="US-7103"):
    path: str
    reason: str
    template = "stored file {path} is damaged: {reason}"
    hint = "restore the file, or load the source from the start"


class FinishedElsewhere(SourceMetaError, code="US-7104", transient=True):
    work: str
    reason: str
    template = "another run has finished {work} of source {source} first: {reason}"
    hint = "nothing has to be done; let only one run of a task be active at a time"


class UnknownSparkConnection(MetaError, code="US-7201", scope=Scope.CONFIG):
    connection: str
    template = "unknown kind of Spark connection: {connection}"
    hint = "use local[n], spark://host:port, yarn, k8s://… or sc://host:port"


class SparkUnavailable(MetaError, code="US-7202", transient=True):
    connection: str
    reason: str
    template = "no Spark session at {connection}: {reason}"
    hint = "check that the server runs and that its Spark and Python versions are those of requirements.txt"


class SparkJobFailed(MetaError, code="US-7203", transient=True):
    reason: str
    template = "the Spark job failed: {reason}"
    hint = "see the log of the Spark application; the step can be repeated"


class SparkTaskCrashed(MetaError, code="US-7204", scope=Scope.INTERNAL):
    reason: str
    template = "a task crashed in a Spark worker: {reason}"
    hint = "this is a defect: report it with the worker's traceback, which is in the notes of this error"


class RelayNeedsFolder(TargetError, code="US-6013", scope=Scope.CONFIG):
    place: str
    storage: str
    template = "{place}: {storage} is the RPC address of HDFS, but unshard uses the REST interface of HDFS"
    hint = (
        "use webhdfs://host:port/folder with the HTTP address of the name node (dfs.namenode.http-address, port 9870)"
    )


class UnexpectedError(MetaError, code="US-7012", scope=Scope.INTERNAL):
    what: str
    traceback: str
    template = "unexpected {what}; {traceback}"
    hint = "this is a defect of unshard: report it with that file; committed work stays, and the next run goes on"


class PackageMissing(MetaError, code="US-7014", scope=Scope.CONFIG):
    module: str
    template = "the Python module {module} is not installed"
    hint = "docs/install.md lists the packages of each machine"


class TaskPaused(MetaError, code="US-7301", scope=Scope.CONFIG):
    task: str
    pause: str
    template = "task {task} is {pause}"
    hint = "`unshard resume` continues it where it stopped"


class TaskAtWork(MetaError, code="US-7302", scope=Scope.CONFIG, transient=True):
    task: str
    places: str
    template = "task {task} is still active: {places}"
    hint = "it is stopped now and begins nothing new: wait until that has ended and repeat the command"


class StartTimePurged(SourceMetaError, code="US-7303", scope=Scope.UPSTREAM):
    time: str
    oldest: str
    template = "source {source} has purged its binlog of {time}: its oldest file is {oldest}, which was begun later"
    hint = "choose a later --start-time, or load the task from the start (task-mode: all)"


class StartTimeAhead(SourceMetaError, code="US-7304", scope=Scope.CONFIG):
    time: str
    template = "the start time {time} has not come yet on source {source}"
    hint = "use a time in the past; a time without an offset is in the task's timezone"


class StartNotNew(MetaError, code="US-7305", scope=Scope.CONFIG):
    task: str
    why: str
    template = "task {task} cannot be started at a time: {why}"
    hint = "a start time is for a task in task-mode incremental that has no state; `--remove-meta` removes the state"


class RulesSpoilRows(SourceMetaError, code="US-7306", scope=Scope.CONFIG):
    what: str
    template = "the changed rules of source {source} do not fit the rows that are in the target: {what}"
    hint = (
        "restore the former rules; or begin again with a task of another name, or with `unshard stop --remove-meta` and"
        " empty targets"
    )


class RulesWait(SourceMetaError, code="US-7307", scope=Scope.CONFIG):
    what: str
    template = "the changed rules of source {source} cannot be used now: {what}"
    hint = "restore the former rules until that has ended (`unshard locks`, `unshard status`), then change them again"


# --- Cutover --------------------------------------------------------------------------------------


class CutoverBlocked(MetaError, code="US-7310", scope=Scope.CONFIG):
    task: str
    count: int
    first: str
    template = "the cutover of task {task} has {count} obstacles: {first}"
    hint = "`unshard cutover plan TASK.yaml` lists them with what to do"


class CutoverNotProven(MetaError, code="US-7311", scope=Scope.DOWNSTREAM):
    table: str
    what: str
    template = "the cutover has not proven that {table} is equal to its shards: {what}"
    hint = "`unshard validate TASK.yaml` names the rows, `unshard repair TASK.yaml` mends them; then cut over again"


class CutoverLate(MetaError, code="US-7312", scope=Scope.UPSTREAM):
    seconds: int
    what: str
    template = "the time of the cutover, {seconds} s, is over: {what}"
    hint = "run it again when fewer rows are written, or with a longer time (--within, --wait)"


class CutoverDone(MetaError, code="US-7313", scope=Scope.CONFIG):
    task: str
    done_at: str
    template = "task {task} was cut over at {done_at}: applications may have written to the target since"
    hint = "to go back, make the sources writable by hand, compare what the target got, and `unshard resume TASK.yaml`"
