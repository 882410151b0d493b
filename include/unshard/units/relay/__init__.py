"""The relay: pulls the binlog of a source into segment files."""
