"""Meta tables about tasks and sources."""
