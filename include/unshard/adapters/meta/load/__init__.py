"""Meta tables about the full load."""
