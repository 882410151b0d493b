"""The prechecks of `unshard check`, decided from values that the servers have returned."""
