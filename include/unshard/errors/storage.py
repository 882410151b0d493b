"""US-71xx: the storage path. US-72xx: Spark. US-6013: HDFS."""

from unshard.errors.base import MetaError, Scope, TargetError


class StorageFailed(MetaError, code="US-7101", transient=True):
    """unshard cannot write, read, list or remove a file below the task's `storage`.

    Remedy: Check that the path exists, has free space, and that every Spark worker reaches it under the same name. For
    an object store check bucket, endpoint, region and credentials (see [configuration](config.md#object-stores)), and
    the free space of the folder for temporary files (`TMPDIR`).
    """

    action: str
    path: str
    reason: str
    template = "cannot {action} {path}: {reason}"
    hint = (
        "check that the storage path exists, has free space and is reachable by every Spark worker under the same name;"
        " for an object store check bucket, credentials, endpoint, and the space for temporary files"
    )


class StoredFileMissing(MetaError, code="US-7102"):
    """A file that a committed row of the meta tables names does not exist.

    The storage was cleaned, or the task file has another path.

    Remedy: Restore the file or correct the path. If the file is lost, load the source from the start.
    """

    path: str
    template = "stored file {path} is missing"
    hint = "set the task's storage to the path of its files, or load the source from the start"


class StoredFileDamaged(MetaError, code="US-7103"):
    """A stored file is damaged by its disk or file system, or was changed by another program."""

    path: str
    reason: str
    template = "stored file {path} is damaged: {reason}"
    hint = "restore the file, or load the source from the start"


class FinishedElsewhere(MetaError, code="US-7104", transient=True):
    """Another run of the same task has finished a window or a load while this run still worked on it.

    The other run may also have removed the files of this work.

    Consequence: Nothing is lost and nothing is applied twice. This run continues from the present state.
    """

    source: str
    work: str
    reason: str
    template = "another run has finished {work} of source {source} first: {reason}"
    hint = "nothing has to be done; let only one run of a task be active at a time"


class UnknownSparkConnection(MetaError, code="US-7201", scope=Scope.CONFIG):
    """The Spark connection of the task file has an unknown form.

    It must be `local[n]`, `spark://host:port`, `yarn`, `k8s://…`, `sc://host:port`, or the id of an Airflow connection
    of the type `spark` or `spark_connect`.
    """

    connection: str
    template = "unknown kind of Spark connection: {connection}"
    hint = "use local[n], spark://host:port, yarn, k8s://… or sc://host:port"


class SparkUnavailable(MetaError, code="US-7202", transient=True):
    """unshard cannot open a Spark session: the server does not answer, or the versions of Spark or Python differ."""

    connection: str
    reason: str
    template = "no Spark session at {connection}: {reason}"
    hint = "check that the server runs and that its Spark and Python versions are those of requirements.txt"


class SparkJobFailed(MetaError, code="US-7203", transient=True):
    """Spark ended a job for a reason of its own, such as a lost executor or too little memory.

    Every step of unshard may be repeated.
    """

    reason: str
    template = "the Spark job failed: {reason}"
    hint = "see the log of the Spark application; the step can be repeated"


class SparkTaskCrashed(MetaError, code="US-7204", scope=Scope.INTERNAL):
    """An unexpected exception occurred in a Spark worker. This is a defect of unshard."""

    reason: str
    template = "a task crashed in a Spark worker: {reason}"
    hint = "this is a defect: report it with the worker's traceback, which is in the notes of this error"


class RelayNeedsFolder(TargetError, code="US-6013", scope=Scope.CONFIG):
    """`storage-path` is `hdfs://…`, the RPC address of HDFS, which needs Hadoop's own libraries on every machine.

    Consequence: The task does not start.
    Remedy: Use `webhdfs://host:port/folder` with the HTTP address of the name node. It is the same file system through
    its REST interface.
    """

    place: str
    storage: str
    template = "{place}: {storage} is the RPC address of HDFS, but unshard uses the REST interface of HDFS"
    hint = (
        "use webhdfs://host:port/folder with the HTTP address of the name node (dfs.namenode.http-address, port 9870)"
    )
