"""Turn an endpoint of a file into a server with its password. This is the only module that looks up secrets.

A `Connections` function returns connections by id. The plugin passes Airflow's; without Airflow
`environment_connections` reads the same environment variables as Airflow.

Certificates are read from their paths when a connection opens, like every other secret. The extra of an Airflow
connection has the keys of Airflow's own MySQL hook: `ssl` with the paths `ca`, `cert` and `key`, and `ssl_mode`. An
unknown value is an error, because a less secure connection than intended would still work.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unshard.config.allowed import secret_file, storage, variable
from unshard.config.sources import Endpoint, Security
from unshard.config.taskkeys import Options
from unshard.core.model import ObjectAccess, Server, Tls, Verify
from unshard.errors.config import ConnectionInvalid, ConnectionUnknown, PasswordVariableUnset, SecretUnreadable

Connections = Callable[[str], Mapping[str, Any]]
"""Maps an id to `conn_type`, `host`, `port`, `login`, `password`, `extra`; raises ConnectionUnknown."""

DEFAULT_PORT = 3306
ENVIRONMENT_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
AWS_EXTRA = ("aws_session_token", "region_name", "endpoint_url", "role_arn")
MODES = {"required": Verify.NONE, "verify_ca": Verify.CA, "verify_identity": Verify.FULL}
PATHS = ("ca", "cert", "key")


def resolve(endpoint: Endpoint, connections: Connections) -> Server:
    """Return the server with its password. A connection's password goes to the connection's server only."""
    if endpoint.conn_id:
        return _connected(endpoint.conn_id, connections(endpoint.conn_id), endpoint)
    port, tls = _port(None, endpoint.port), tls_of(endpoint.security, secret_file)
    return Server(str(endpoint.host), port, str(endpoint.user), _password(endpoint), endpoint.session, tls)


def _connected(conn_id: str, found: Mapping[str, Any], endpoint: Endpoint) -> Server:
    if found.get("conn_type") not in ("mysql", "unshard", "", None):
        raise ConnectionInvalid(conn_id, "it is not of the type mysql or unshard")
    host, user, password = (str(found.get(key) or "") for key in ("host", "login", "password"))
    if not (host and user):
        raise ConnectionInvalid(conn_id, "it has no host" if not host else "it has no login")
    tls = tls_of(_security(conn_id, found))
    return Server(host, _port(conn_id, found.get("port")), user, password, endpoint.session, tls)


def storage_access(options: Options, connections: Connections) -> ObjectAccess:
    """Return the credentials of the storage path: its connection's, else the environment's of this process."""
    if not storage(options.storage_path).startswith("s3://"):
        return ObjectAccess()
    if options.storage_conn_id:
        return _object_access(options.storage_conn_id, connections(options.storage_conn_id))
    key, secret, token = (os.environ.get(name, "") for name in ENVIRONMENT_KEYS)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    return ObjectAccess(key, secret, token if key else "", region, endpoint)


def _object_access(conn_id: str, found: Mapping[str, Any]) -> ObjectAccess:
    key, secret, extra = str(found.get("login") or ""), str(found.get("password") or ""), _aws_extra(conn_id, found)
    if bool(key) != bool(secret):
        raise ConnectionInvalid(conn_id, "it has only one of login (the key) and password (the secret)")
    if key and extra.get("role_arn"):
        raise ConnectionInvalid(conn_id, "its role_arn needs the environment's credentials, but it has a login")
    token, region, endpoint, role = (str(extra.get(name) or "") for name in AWS_EXTRA)
    if "@" in endpoint:
        raise ConnectionInvalid(conn_id, "its endpoint_url has credentials")
    return ObjectAccess(key, secret, token, region, endpoint, role)


def _aws_extra(conn_id: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    if found.get("conn_type") not in ("aws", "", None):
        raise ConnectionInvalid(conn_id, "it is not of the type aws")
    extra = _extra(conn_id, found.get("extra"))
    if unknown := sorted(extra.keys() - set(AWS_EXTRA)):
        known = ", ".join(AWS_EXTRA)
        raise ConnectionInvalid(conn_id, f"its extra has {', '.join(unknown)}; only {known} are known")
    return extra


def variable_of(conn_id: str) -> str:
    """Return the environment variable that Airflow reads for a connection."""
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def environment_connections(conn_id: str) -> Mapping[str, Any]:
    """Read a connection from its environment variable, a JSON object or a URI."""
    text = os.environ.get(variable_of(conn_id), "").strip()
    if not text:
        raise ConnectionUnknown(conn_id, variable_of(conn_id))
    return _from_json(conn_id, text) if text.startswith("{") else _from_uri(conn_id, text)


def _security(conn_id: str, found: Mapping[str, Any]) -> Security | None:
    extra = _extra(conn_id, found.get("extra"))
    paths = extra.get("ssl") or {}
    if isinstance(paths, str):
        paths = _json(conn_id, paths, "'ssl' of its extra")
    return security_of(conn_id, extra, paths)


def _extra(conn_id: str, extra: object) -> Mapping[str, Any]:
    if isinstance(extra, str) and extra.strip():
        extra = _json(conn_id, extra, "its extra")
    return extra if isinstance(extra, Mapping) else {}


def _password(endpoint: Endpoint) -> str:
    if endpoint.password_env:
        variable(endpoint.password_env)
        if endpoint.password_env not in os.environ:
            raise PasswordVariableUnset(endpoint.password_env, f"{endpoint.user}@{endpoint.host}")
        return os.environ[endpoint.password_env]
    if endpoint.password_file:
        return read_secret(secret_file(endpoint.password_file), "password").rstrip("\r\n")
    return endpoint.password or ""


def _port(conn_id: str | None, port: object) -> int:
    text = str(port or DEFAULT_PORT)
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ConnectionInvalid(conn_id or "", "its port is not a TCP port")
    return int(text)


def _from_json(conn_id: str, text: str) -> Mapping[str, Any]:
    body = _json(conn_id, text, "it")
    found = {key: body.get(key) for key in ("host", "port", "login", "password", "extra")}
    return {**found, "conn_type": _conn_type(str(body.get("conn_type") or ""))}


def _conn_type(name: str) -> str:
    """Return the type with underscores: a URI scheme cannot have the underscore of spark_connect."""
    return name.replace("-", "_")


def _json(conn_id: str, text: str, what: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        # The decoder's message could quote the password.
        raise ConnectionInvalid(conn_id, f"{what} is not JSON") from None
    if not isinstance(body, dict):
        raise ConnectionInvalid(conn_id, f"{what} is not a JSON object")
    return body


def _from_uri(conn_id: str, text: str) -> Mapping[str, Any]:
    """Read Airflow's URI; a host with its own scheme is written `spark://spark%3A%2F%2Fmaster:7077`."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    conn_type, _, rest = text.partition("://")
    try:
        parts = urlsplit(f"//{rest}")
        port = parts.port
    except ValueError:
        raise ConnectionInvalid(conn_id, "it is not a URI") from None
    if not conn_type or not (parts.hostname or conn_type == "aws"):
        raise ConnectionInvalid(conn_id, "its URI has no host")
    query = dict(parse_qsl(parts.query))
    return {
        "conn_type": _conn_type(conn_type),
        "host": unquote(parts.hostname or ""),
        "port": port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "extra": query.get("__extra__", query),
    }


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
    return Security(ca, certificate, private, verify=MODES.get(mode))


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
