"""A limit of bytes per second that several readers share: a token bucket, stored as the time when it is balanced.

A reader reports the bytes that it has read, and waits until the rate allows them. After any idle time, readers may use
at most `BURST_SECONDS` of the rate at once.
"""

BURST_SECONDS = 1.0


def take(allowed_at: float, now: float, size: int, rate: int) -> tuple[float, float]:
    """Take `size` bytes; return the time when the rate allows all bytes taken so far, and the seconds until then."""
    allowed_at = max(allowed_at, now - BURST_SECONDS) + size / rate
    return allowed_at, max(0.0, allowed_at - now)
