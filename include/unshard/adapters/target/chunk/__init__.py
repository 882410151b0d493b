"""Chunks of the full load in the target: what marks them as loaded, and rows that are left to the binlog."""
