"""Figures with their spread; both sides of a comparison are measured in one run, alternating."""
