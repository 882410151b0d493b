"""Every error that unshard raises on purpose; each has a code, a scope and a next step.

The base class gives the thousand of the code, the module gives the subject:

* ConfigError    US-1xxx  task and source files, command line: config.py
* ServerError    US-20xx  what a server answers: source.py
* SourceError    US-2xxx  structures, prechecks, full load: source.py, checks.py, rows.py, full.py
* RelayError     US-3xxx  binlog and decoding: relay.py, rows.py
* DdlError       US-4xxx  reading and executing DDL: ddl.py
* ShardDdlError  US-5xxx  DDL locks and operators' commands: locks.py
* TargetError    US-6xxx  rows, rules, full load, validation: rows.py, full.py, meta.py
* MetaError      US-7xxx  meta tables, storage and Spark, life of a task: meta.py

A code has one meaning. docs/errors.md explains each of them.
"""

from unshard.errors.base import Scope, UnshardError

__all__ = ["Scope", "UnshardError"]
