"""SQL text: tokens, quoting, literals, character sets and key ranges."""
