"""Formats numbers, sizes and durations for people."""


def amount(number: int) -> str:
    """Format a number with thousands separators: `1234567` → `1,234,567`."""
    return f"{number:,}"


def size(number: int) -> str:
    """Format a number of bytes in the largest unit of which there is at least 1."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def lasting(seconds: int) -> str:
    """Format a duration with two units: `45 s`, `3 min 20 s`, `2 h 5 min`, `4 d 2 h`."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
