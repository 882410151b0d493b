"""Every error that unshard raises on purpose; each has a code, a scope and a next step.

* UnshardError
  x ConfigError      US-1xxx  task and source files            errors/config.py
  x SourceError      US-2xxx  upstream: precheck, snapshot, dump  errors/source.py
  x RelayError       US-3xxx  binlog: relay, events, decoding  errors/relay.py
  x DdlError         US-4xxx  reading and executing DDL        errors/ddl.py
  x ShardDdlError    US-5xxx  groups, locks, operators         errors/shardddl.py
  x TargetError      US-6xxx  load, apply, validate            errors/target.py, leftout.py, writing.py
  x MetaError        US-7xxx  meta tables, storage, Spark, life of a task  errors/meta.py, life.py

A leaf is a dataclass: its fields are the parts of the message, so it pickles across processes and
an operator's tool can read the parts. A code never changes its meaning and is never used again
(tests/unit/golden/error_codes.txt); every code has a paragraph in docs/errors.md.
"""

from unshard.errors.base import Scope, UnshardError

__all__ = ["Scope", "UnshardError"]
