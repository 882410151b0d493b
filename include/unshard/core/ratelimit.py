"""A limit of bytes per second that several readers share: a token bucket, kept as the moment at which it is paid off.

Readers tell what they have read and wait until it is paid. Whoever was idle has `BURST_SECONDS` of the rate to spend,
not more, however long it was.
"""

BURST_SECONDS = 1.0


def take(paid: float, now: float, size: int, rate: int) -> tuple[float, float]:
    """Return the moment at which everything is paid when `size` bytes more are taken, and how long to wait for it."""
    paid = max(paid, now - BURST_SECONDS) + size / rate
    return paid, max(0.0, paid - now)
