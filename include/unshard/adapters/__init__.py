"""Adapters, one per external system: servers, relay segments, object store, meta tables, Spark, target."""
