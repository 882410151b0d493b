"""DDL of the shards: effects, locks, execution on the target."""
