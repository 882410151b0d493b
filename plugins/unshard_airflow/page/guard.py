"""Check that a POST comes from one of our forms, and from the browser session of that form.

Airflow's login cookie is SameSite=Lax, which alone blocks forms of other sites in most browsers. In addition:

* a token in every form: an HMAC over user, task and a random value in a cookie of our own (HttpOnly, SameSite=Strict),
  with a key derived from Airflow's secret, so that every API server accepts it and nothing else can create one;
* the Origin header must be ours. A browser sends it with every POST; a request without it is rejected.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import Request, Response

COOKIE = "unshard_form"
FIELD = "form_token"
_PURPOSE = b"unshard page form token"


def new_session() -> str:
    """Return the random value of a browser session."""
    return secrets.token_urlsafe(32)


def token(secret: bytes, session: str, user: str, task: str) -> str:
    """Return the token of a form for this session, user and task."""
    key = hmac.digest(secret, _PURPOSE, hashlib.sha256)
    message = "\x00".join((session, user, task)).encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def is_token(secret: bytes, session: str, user: str, task: str, found: str) -> bool:
    """Whether the token is valid; never without a session."""
    return bool(session) and hmac.compare_digest(token(secret, session, user, task).encode(), found.encode())


def is_from_us(headers: Mapping[str, str], own: str) -> bool:
    """Whether the headers show that the request comes from a page of this site.

    The scheme is not compared: behind a proxy that ends TLS the server does not know it.
    `own` is Airflow's base URL, for a proxy that does not forward the host name.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = urlsplit(headers.get("origin", "")).netloc
    return bool(origin) and origin in {headers.get("host", ""), urlsplit(own).netloc}


def set_session(response: Response, request: Request, session: str, root: str) -> None:
    """Give the browser the cookie of a session, unless it has it."""
    if request.cookies.get(COOKIE) != session:
        is_secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, session, path=root or "/", httponly=True, samesite="strict", secure=is_secure)
