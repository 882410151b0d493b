"""`unshard validate`: compares each target table with the union of its shards."""
