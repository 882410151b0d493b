"""The join of the structures of shards, which the target of a task with `shard-mode: optimistic` follows.

The rules are tables in these modules: `tables` (columns, keys, constraints), `group` (identities of columns),
`difference` (steps from the target to the join), `decision` (what one DDL leads to), and `columntypes` of
`core.structures` (the join of two types).
"""
