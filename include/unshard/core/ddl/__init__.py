"""DDL of the shards: reading it, its effect on a shard, the shard groups and their locks."""
