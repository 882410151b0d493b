"""Whether a POST comes from a form of ours, sent by the browser session that the form was made for.

Airflow's login cookie is SameSite=Lax, which alone keeps strangers' forms out in most browsers. On top of it:

* a token in every form: an HMAC over user, task and a random value in a cookie of our own (HttpOnly, SameSite=Strict),
  with a key derived from Airflow's secret, so that every API server accepts it and nobody else can make one;
* the Origin that the browser tells must be ours. A browser sends it with every POST; one without is refused.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

COOKIE = "unshard_form"
FIELD = "form_token"
_PURPOSE = b"unshard page form token"


def new_session() -> str:
    """Return the random value of a browser session."""
    return secrets.token_urlsafe(32)


def token(secret: bytes, session: str, user: str, task: str) -> str:
    """Return what a form for that session, user and task must bring along."""
    key = hmac.digest(secret, _PURPOSE, hashlib.sha256)
    said = "\x00".join((session, user, task)).encode()
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def is_token(secret: bytes, session: str, user: str, task: str, given: str) -> bool:
    """Whether the token is the right one; never without a session."""
    return bool(session) and hmac.compare_digest(token(secret, session, user, task).encode(), given.encode())


def is_from_us(headers: Mapping[str, str], own: str) -> bool:
    """Whether the browser says that the request was made by a page of this site.

    The scheme is not compared: behind a proxy that ends TLS the server does not know it.
    `own` is Airflow's base URL, for a proxy that does not hand on the host name.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = urlsplit(headers.get("origin", "")).netloc
    return bool(origin) and origin in {headers.get("host", ""), urlsplit(own).netloc}
