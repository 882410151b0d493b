"""Statements that send rendered rows, and the checks of the server's answers."""
