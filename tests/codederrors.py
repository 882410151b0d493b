"""All errors that unshard raises on purpose."""

import importlib
import pkgutil

import unshard.errors
from unshard.errors.base import UnshardError


def all_errors() -> list[type[UnshardError]]:
    """Return every error class that has a code, in the order of the codes."""
    for module in pkgutil.iter_modules(unshard.errors.__path__):
        importlib.import_module(f"unshard.errors.{module.name}")
    found = [UnshardError]
    for kind in found:
        found += kind.__subclasses__()
    return sorted({kind for kind in found[1:] if "code" in vars(kind)}, key=lambda kind: kind.code)
