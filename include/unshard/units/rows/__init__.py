"""Rows in Arrow batches: from the binlog or a dump to the columns of the target."""
