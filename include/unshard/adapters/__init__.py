"""One outside thing a module: servers, the relay's segments, an object store, meta tables, Spark, the target."""
