"""One window of a source: its plan, its size, and suspended targets."""
