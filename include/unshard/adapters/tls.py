"""TLS of connections: the peer is verified before the login is sent.

Contexts are created once per process, because reading certificates costs more than a login. Certificates are part of a
`Server` as text. OpenSSL reads the client certificate only from files, so it gets the path of a file in memory that is
on no disk.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from functools import cache
from typing import Any

from unshard.core.model import Tls, Verify
from unshard.errors.config import CertificateInvalid


class CheckedContext(ssl.SSLContext):
    """A context that also checks the common name of the certificate."""

    allowed: tuple[str, ...] = ()
    authenticates = False
    """Whether only the right server can have the certificate, so that it may get the password itself."""

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Complete the handshake, then check the name; raises SSLCertVerificationError."""
        wrapped = super().wrap_socket(*args, **options)
        names = common_names(wrapped.getpeercert() or {})
        if self.allowed and not set(names) & set(self.allowed):
            wrapped.close()
            shown = ", ".join(names) or "none"
            raise ssl.SSLCertVerificationError(f"common name {shown} is not one of {', '.join(self.allowed)}")
        return wrapped


@cache
def context(tls: Tls) -> ssl.SSLContext:
    """Return the context for connections with these TLS settings."""
    secured = CheckedContext(ssl.PROTOCOL_TLS_CLIENT)
    secured.allowed = tls.allowed
    secured.authenticates = tls.verify is Verify.FULL or (tls.verify is Verify.CA and bool(tls.ca or tls.allowed))
    secured.minimum_version = ssl.TLSVersion.TLSv1_2
    secured.check_hostname = tls.verify is Verify.FULL
    secured.verify_mode = ssl.CERT_NONE if tls.verify is Verify.NONE else ssl.CERT_REQUIRED
    try:
        if tls.ca:
            secured.load_verify_locations(cadata=tls.ca)
        else:
            secured.load_default_certs()
        if tls.certificate:
            _load_client_certificate(secured, tls)
    except (ssl.SSLError, ValueError) as error:
        # The message names the kind of fault, never the content of the file.
        raise CertificateInvalid(str(getattr(error, "reason", None) or "it is not in PEM format")) from None
    return secured


def common_names(certificate: Any) -> tuple[str, ...]:
    """Return the common names in a certificate's subject."""
    return tuple(value for part in certificate.get("subject", ()) for name, value in part if name == "commonName")


def _load_client_certificate(secured: ssl.SSLContext, tls: Tls) -> None:
    with _memory_file(tls.certificate) as certificate, _memory_file(tls.key) as key:
        # Without this function OpenSSL would prompt for the key's password on the terminal.
        secured.load_cert_chain(certificate, key, password=lambda: "")


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Return the path of a file that exists only in memory, until the block ends."""
    descriptor = os.memfd_create("unshard")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
