"""Meta tables about windows and suspended targets."""
