"""The parts of the meta tables of a task: a reading part has only SELECTs, a writing part extends it."""

from unshard.adapters.meta.database import MetaDatabase, ReadDatabase


class ReadingPart:
    """Reads rows of one task."""

    _database: ReadDatabase

    def __init__(self, database: ReadDatabase) -> None:
        self._database = database
        self._task = database.task


class WritingPart(ReadingPart):
    """Reads and changes rows of one task."""

    _database: MetaDatabase

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
