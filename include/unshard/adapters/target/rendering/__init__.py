"""Rows as text: lines of LOAD DATA, and value lists of INSERT."""
