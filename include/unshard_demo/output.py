"""The lines that the demo prints, and its one exception."""

import sys
import time


class DemoFailed(Exception):
    """A step failed; the message gives the reason."""


def say(text: str) -> None:
    """Print a separate line."""
    progress.end()
    print(text, flush=True)


def figure(label: str, value: float, text: str = "") -> str:
    """Return a line of the summary."""
    return f"  {label:<24} {value:>10,.0f} {text}".rstrip()


class _Progress:
    """A line that is rewritten on a terminal; elsewhere a new line for a change, but not too often."""

    def __init__(self) -> None:
        self.last, self.at = "", 0.0

    def __call__(self, text: str) -> None:
        if sys.stdout.isatty():
            print(f"\r\x1b[2K  {text}", end="", flush=True)
        elif text != self.last and time.monotonic() - self.at > 5:
            print(f"  {text}", flush=True)
            self.at = time.monotonic()
        self.last = text

    def end(self) -> None:
        if sys.stdout.isatty() and self.last:
            print(flush=True)
        self.last, self.at = "", 0.0


progress = _Progress()
