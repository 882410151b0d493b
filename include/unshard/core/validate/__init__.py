"""Comparing the target with the union of its shards."""
