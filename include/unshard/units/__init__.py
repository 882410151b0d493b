"""The processing units: precheck, snapshot, dump, load, relay, sync, coordinate, validate."""
