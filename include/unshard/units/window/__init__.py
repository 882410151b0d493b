"""Windows: the only way in which binlog rows reach the target."""
