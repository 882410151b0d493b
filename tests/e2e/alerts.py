"""A notifier as a user would write one: it appends every alert to a file named in the environment."""

import os
from pathlib import Path

from unshard_airflow.alerts import Alert, FailureNotifier


class ToFile(FailureNotifier):
    def send(self, alert: Alert) -> None:
        with Path(os.environ["UNSHARD_TEST_ALERTS"]).open("a") as file:
            file.write(f"{alert.text}\n\n")
