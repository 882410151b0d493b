"""Read certificates from their paths when a connection opens, like every other secret.

The extra of an Airflow connection has the keys of Airflow's own MySQL hook: `ssl` with the paths `ca`, `cert`
and `key`, and `ssl_mode`. An unknown value is an error, because a less secure connection than intended would
still work.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unshard.config.model import Security
from unshard.core.model import Tls, Verify
from unshard.errors.config import ConnectionInvalid, SecretUnreadable

MODES = {"required": Verify.NONE, "verify_ca": Verify.CA, "verify_identity": Verify.FULL}
PATHS = ("ca", "cert", "key")


def tls_of(security: Security | None, allowed: Callable[[Path], Path] = Path) -> Tls | None:
    """Read the certificates; `allowed` returns their real paths, or raises an error for a file that is not allowed."""
    if security is None:
        return None
    ca, certificate, key = (
        read_secret(allowed(path), what) if path else ""
        for path, what in (
            (security.ca, "certificate of the authority"),
            (security.certificate, "certificate"),
            (security.key, "private key"),
        )
    )
    return Tls(_verify(security), ca, certificate, key, security.allowed)


def security_of(conn_id: str, extra: Mapping[str, Any], paths: object) -> Security | None:
    """Return the TLS settings of a connection's extra; `paths` is its `ssl`."""
    for key in extra:
        if str(key).lower().startswith("ssl") and key not in ("ssl", "ssl_mode"):
            raise ConnectionInvalid(conn_id, f"its extra has '{key}'; only ssl and ssl_mode are known")
    if not isinstance(paths, Mapping) or set(paths) - set(PATHS):
        raise ConnectionInvalid(conn_id, f"'ssl' of its extra is not a mapping of {', '.join(PATHS)} to paths")
    mode = str(extra.get("ssl_mode") or "preferred").lower()
    if mode not in (*MODES, "preferred"):
        raise ConnectionInvalid(conn_id, f"'ssl_mode' of its extra is not one of {', '.join(MODES).upper()}")
    if not paths and mode == "preferred":
        return None
    if bool(paths.get("cert")) != bool(paths.get("key")):
        raise ConnectionInvalid(conn_id, "'ssl' of its extra has one of cert and key without the other")
    ca, certificate, private = (Path(paths[name]) if paths.get(name) else None for name in PATHS)
    return Security(ca, certificate, private, MODES.get(mode))


def _verify(security: Security) -> Verify:
    if security.verify is not None:
        return security.verify
    if security.allowed:
        return Verify.CA
    return Verify.FULL if security.ca else Verify.NONE


def read_secret(path: Path, what: str) -> str:
    """Return the text of a file; the error names the file, but never its content."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SecretUnreadable(str(path), what, error.strerror or type(error).__name__) from None
    except ValueError:
        raise SecretUnreadable(str(path), what, "it is not text") from None
