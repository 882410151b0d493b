"""Table structures: their CREATE TABLE text, its parts, and comparisons of structures."""
