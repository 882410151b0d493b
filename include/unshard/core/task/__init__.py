"""The state of a task: phase, checkpoint, pause."""
