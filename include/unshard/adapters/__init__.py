"""One outside thing a module: servers, the relay folder, meta tables, Spark, the target."""
