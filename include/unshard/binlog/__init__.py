"""Bytes of the MySQL/MariaDB binlog to values; no I/O beyond the buffer that is given."""
