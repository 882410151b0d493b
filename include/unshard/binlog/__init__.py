"""Convert bytes of the MySQL or MariaDB binlog to values; does no I/O of its own (used by relay and executors)."""
