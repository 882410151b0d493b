"""Meta tables about shards and their structures."""
