"""Backups of the three places of a task's state: meta schema, target schema and storage path."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from unshard_demo.servers import MariaDb

META, TARGET, STORAGE = "meta", "target", "storage"
PLACES = (META, TARGET, STORAGE)


@dataclasses.dataclass(frozen=True)
class Backups:
    """Saves and restores the schemas `<meta>` and `<name>_to`, and a storage path. Its copies are schemas too."""

    server: MariaDb
    name: str
    meta: str
    storage: Path

    def save(self, label: str, *places: str) -> None:
        """Copy these places, or all."""
        for place in places or PLACES:
            self._copy(place, "", label)

    def restore(self, label: str, *places: str) -> None:
        """Replace these places, or all, by their copies; a place that did not exist then is lost."""
        for place in places or PLACES:
            self._copy(place, label, "")

    def lose(self, *places: str) -> None:
        """Remove these places."""
        for place in places:
            if place == STORAGE:
                shutil.rmtree(self.storage, ignore_errors=True)
            else:
                self.server.run(f"DROP DATABASE IF EXISTS {self._schema(place, '')}")

    def drop(self, labels: Sequence[str]) -> None:
        """Remove copies."""
        schemas = [self._schema(place, label) for place in (META, TARGET) for label in labels]
        self.server.run("DO 1", *(f"DROP DATABASE IF EXISTS {schema}" for schema in schemas))

    def _schema(self, place: str, label: str) -> str:
        if place == META and not label:
            return self.meta
        return f"{self.name}_{'to' if place == TARGET else 'meta'}{label and '_'}{label}"

    def _folder(self, label: str) -> Path:
        return self.storage.with_name(f"{self.storage.name}{label and '-'}{label}")

    def _copy(self, place: str, old: str, new: str) -> None:
        if place == STORAGE:
            shutil.rmtree(self._folder(new), ignore_errors=True)
            if self._folder(old).exists():
                shutil.copytree(self._folder(old), self._folder(new))
            return
        one, other = self._schema(place, old), self._schema(place, new)
        tables = self.server.run(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{one}'")
        self.server.run(f"DROP DATABASE IF EXISTS {other}", *([f"CREATE DATABASE {other}"] if tables else []))
        for (table,) in tables:
            names = f"{one}.`{table}`", f"{other}.`{table}`"
            self.server.run(
                f"CREATE TABLE {names[1]} LIKE {names[0]}", f"INSERT INTO {names[1]} SELECT * FROM {names[0]}"
            )
