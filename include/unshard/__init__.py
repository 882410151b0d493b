"""unshard merges sharded MySQL/MariaDB tables into one table of a TiDB, MySQL or MariaDB target."""

__version__ = "0.1.0"
