"""Rows: compaction of changes, and values for columns that a shard does not have."""
