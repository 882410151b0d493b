"""Whole tasks in memory."""
