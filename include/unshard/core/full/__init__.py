"""The full load: chunks, progress, rate limit, indexes that are created after the load."""
