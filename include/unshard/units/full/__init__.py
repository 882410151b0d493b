"""The full load: snapshot, dump, load, handover."""
