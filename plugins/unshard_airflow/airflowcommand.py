"""`airflow unshard …`: the command line of unshard, with Airflow's connections."""

import contextlib
import os
import sys
from argparse import REMAINDER, Namespace
from pathlib import Path
from typing import Any


def get_cli_commands() -> list[Any]:
    """Return the command for Airflow's command line."""
    from airflow.cli.cli_config import ActionCommand, Arg

    argument: Any = Arg
    arguments = argument(("arguments",), nargs=REMAINDER, help="arguments of unshard, such as: status shop.yaml")
    return [
        ActionCommand("unshard", "Run a command of unshard with Airflow's connections", run_in_airflow, (arguments,))
    ]


def run_in_airflow(options: Namespace) -> None:
    """Run the command, and end the process with its exit code."""
    from unshard.cli import main
    from unshard.errors import UnshardError
    from unshard_airflow.bulk import secrets_of
    from unshard_airflow.connections import server_connections
    from unshard_airflow.options import task_with_options

    file = next((path for path in map(Path, options.arguments) if path.suffix == ".yaml" and path.is_file()), None)
    with contextlib.suppress(UnshardError):  # the command finds the same error, and reports it
        os.environ.update(secrets_of(task_with_options(file), server_connections) if file else {})
    sys.exit(main(options.arguments))
