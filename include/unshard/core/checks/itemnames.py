"""The names of the prechecks in `ignore-checking-items`."""

ITEMS = {
    "version": "the make and version of the server",
    "server_id": "`server_id` is not 0, and no two sources have the same",
    "binlog_enable": "`log_bin` is on",
    "binlog_format": "`binlog_format` is ROW",
    "binlog_storage_engine": "the binlog is in files, not in a storage engine",
    "binlog_row_image": "`binlog_row_image` is FULL, else rows lack columns that are read from the target",
    "binlog_row_metadata": "what the binlog says about columns",
    "binlog_retention": "the source keeps its binlog for a day at least",
    "binlog_db": "the server's own filters hide no shard",
    "replication_privilege": "the account may read the binlog",
    "dump_privilege": "the account may read every shard and take a snapshot",
    "conn_number": "the server has room for the connections of the task",
    "shards": "the source has shards",
    "routes": "the routes send every table to one place",
    "table_schema": "foreign keys, keys, engines, types of columns, kinds of tables",
    "prepared_transactions": "no XA transaction stays prepared on a source before its snapshot",
    "online_ddl": "no gh-ost or pt-online-schema-change is under way",
    "full_load": "`task-mode` and `where` fit what is already dumped",
    "meta_position": "the source still has the binlog that `meta` names",
    "schema_of_shard_tables": "the shards of a target are alike",
    "auto_increment_ID": "the shards of a target do not number their rows each by itself",
    "sequence": "no SEQUENCE is taken for a table",
    "column_mapping": "ids fit into the bits of column mappings, which keep the shards apart",
    "drop_shard_rows": "with `drop-shard-rows: delete`, extracted columns or mapped ids tell the shards apart",
    "expression_filter": "the target can evaluate the expressions of filters",
    "dump_condition": "the sources can evaluate `where`, and changes of rows that it leaves out can be applied",
    "key_overlap": "sampled keys of a shard are in no other shard",
    "server_settings": "names of tables are compared alike, `sql_mode` and `collation_server` are the same,"
    " time zones of the sources are the task's, `max_allowed_packet` is enough for `validate`",
    "rules": "every route and every entry of a list matches something",
    "local_infile": "the target takes LOAD DATA LOCAL",
    "write_path": "how rows are written: COM_STMT_BULK_EXECUTE, LOAD DATA LOCAL or multi-row statements, and why",
    "meta_schema": "privileges on the meta schema",
    "target_privilege": "privileges on the target schemas",
    "target_tables": "target tables that exist fit, hold every value of shards, and no rows before the load",
    "target_structure": "the target can create tables like the shards: types, defaults, indexes, constraints, options",
    "clustered_key": "TiDB does not store target tables by a primary key that a later DDL may change",
    "target_settings": "sessions of the target have no setting that breaks transactions or shows old rows",
    "collation": "the target knows the collations of the shards; tables and schemas that are merged default to one",
    "backups": "meta schema, target schemas and storage path are of one moment",
    "free_space": "the storage path has room for the dump",
    "object_store": "the bucket or folder of HDFS of the storage path can be written, listed and read",
}
"""The checks, by their names in `ignore-checking-items`; the item `reachable` cannot be ignored."""

PHYSICAL_ONLY = (
    "empty_region",
    "region_distribution",
    "downstream_version",
    "downstream_mutex_features",
    "downstream_table_empty",
    "primary_key",
)
"""DM's items that unshard accepts and does not need."""
EVERYTHING = "all"
IGNORABLE = (EVERYTHING, *ITEMS, *PHYSICAL_ONLY)
