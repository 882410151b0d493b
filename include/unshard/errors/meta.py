"""US-70xx: the meta tables."""

from unshard.errors.base import MetaError, Scope


class MetaMissing(MetaError, code="US-7001"):
    """The meta schema of the task, or a table of it, does not exist.

    Remedy: `unshard migrate` and every start of the task create the missing tables. If the schema was dropped by
    mistake, the state of the task is lost: load the task from the start.
    """

    schema: str
    server_message: str
    template = "the meta schema {schema} does not exist or is incomplete: {server_message}"
    hint = "`unshard migrate` or the start of the task creates it; if it was dropped, load the task from the start"


class MetaTooNew(MetaError, code="US-7002"):
    """A newer unshard has migrated the meta tables to a version that this one does not know."""

    schema: str
    found: int
    known: int
    template = "the meta schema {schema} has version {found}, this unshard knows {known}"
    hint = "use the newer unshard everywhere; the meta tables are never migrated backwards"


class MigrationBusy(MetaError, code="US-7003", transient=True):
    """Another process has been migrating the meta tables for a minute."""

    schema: str
    seconds: int
    template = "another process has been migrating the meta schema {schema} for {seconds} s"
    hint = "try again; if it repeats, look for its connection in SHOW PROCESSLIST of the target"


class UnknownSource(MetaError, code="US-7005"):
    """The meta tables have no such source, because the task has not taken its snapshot yet."""

    task: str
    source: str
    template = "task {task} has recorded nothing about source {source} yet"
    hint = "run the full stage of the task first: it takes the snapshot of every source"


class StructureMissing(MetaError, code="US-7006", scope=Scope.INTERNAL):
    """The state refers to a table structure that is not stored.

    The meta schema was changed by hand or partly restored.
    """

    digest: str
    template = "structure {digest} is not in the meta tables"
    hint = "restore the meta schema from the backup that goes with the target, or load the task from the start"


class MetaUnreadable(MetaError, code="US-7007", scope=Scope.INTERNAL):
    """Another version of unshard wrote a stored plan or DDL in a form that this version does not read."""

    what: str
    reason: str
    template = "{what} cannot be read back: {reason}"
    hint = "use the version of unshard that wrote it until its window is committed or its lock resolved"


class PhaseFellBack(MetaError, code="US-7008", scope=Scope.INTERNAL):
    """unshard tried to set a source back to an earlier phase. This is a defect of unshard: report it.

    Consequence: Nothing is changed.
    """

    source: str
    phase: str
    wanted: str
    template = "source {source} is in phase {phase} and cannot go back to {wanted}"
    hint = "clear the task's state to load it from the start"


class BackupOlder(MetaError, code="US-7020"):
    """The meta schema, a target schema or the storage path is lost, or was restored from an older backup than the rest.

    Each write of rows and each DDL is recorded in the meta schema and in the target schema. The two records differ,
    or a file that the meta schema names is missing.

    Consequence: Nothing is written.
    Remedy: Restore it as it was at the moment of the others, or all from one backup. If that is not possible, load the
    task from the start. See [backups](operations.md#backups).
    """

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
    """unshard was upgraded, and nothing of the task has run since.

    Commands that only read (`check`, `status`, `collisions`, `row-errors`, `locks`, `ddl list`, `validate`, dry runs,
    the page) do not migrate the meta tables, because processes of the former version could not continue with newer
    ones.

    Consequence: The command stops. Nothing is changed.
    Remedy: Upgrade unshard everywhere, then run the task or `unshard migrate TASK.yaml`, which only migrates.
    """

    schema: str
    found: int
    known: int
    template = "the meta schema {schema} has version {found}, this unshard works with {known}"
    hint = "`unshard migrate` or the task's next window migrates it; older processes then reject it"
