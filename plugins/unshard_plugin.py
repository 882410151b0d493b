"""Registers the plugin with an Airflow whose plugins folder is this one; an installed package needs no such file."""

from unshard_airflow.plugin import UnshardPlugin

__all__ = ["UnshardPlugin"]
