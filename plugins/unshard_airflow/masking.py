"""Masked texts for the page, logs and alerts."""

from unshard.core.masking import HIDDEN, refusal, statement

__all__ = ["HIDDEN", "refusal", "statement"]
