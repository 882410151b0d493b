"""A prototype: one group with column ids for both modes (issue 40, docs/adr/0026-one-group-for-both-modes.md)."""
