"""Binlog segments: their index, their order, and GTID sets."""
