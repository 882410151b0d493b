"""A whole task: run, status, pause and removal."""
