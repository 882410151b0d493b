"""The command line: the same units as in Airflow, run by hand; `unshard --help` lists the commands."""

from unshard.cli.app import main

__all__ = ["main"]
