"""TLS of connections: who is on the other side is decided before a word of the login goes over.

Contexts are made once per process and kept, because reading certificates costs more than a login. The
certificates travel as text with the rest of a `Server`; OpenSSL takes the own one from files only, so it is
handed over in memory that looks like a file and is on no disk.
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
    """A context that asks for the common name of the certificate, too."""

    allowed: tuple[str, ...] = ()

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Shake hands, then look at the name; raises SSLCertVerificationError."""
        wrapped = super().wrap_socket(*args, **options)
        names = common_names(wrapped.getpeercert() or {})
        if self.allowed and not set(names) & set(self.allowed):
            wrapped.close()
            shown = ", ".join(names) or "none"
            raise ssl.SSLCertVerificationError(f"common name {shown} is none of {', '.join(self.allowed)}")
        return wrapped


@cache
def context(tls: Tls) -> ssl.SSLContext:
    """Return the context for connections that are secured like this."""
    made = CheckedContext(ssl.PROTOCOL_TLS_CLIENT)
    made.allowed = tls.allowed
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = tls.verify is Verify.FULL
    made.verify_mode = ssl.CERT_NONE if tls.verify is Verify.NONE else ssl.CERT_REQUIRED
    try:
        if tls.ca:
            made.load_verify_locations(cadata=tls.ca)
        else:
            made.load_default_certs()
        if tls.certificate:
            _show(made, tls)
    except (ssl.SSLError, ValueError) as error:
        # The words name the kind of fault, never what stands in the file.
        raise CertificateInvalid(str(getattr(error, "reason", None) or "it is no PEM")) from None
    return made


def common_names(certificate: Any) -> tuple[str, ...]:
    """Return the common names in a certificate's subject."""
    return tuple(value for part in certificate.get("subject", ()) for name, value in part if name == "commonName")


def _show(made: ssl.SSLContext, tls: Tls) -> None:
    with _memory(tls.certificate) as certificate, _memory(tls.key) as key:
        # Without a function OpenSSL would ask for the password of the key on the terminal.
        made.load_cert_chain(certificate, key, password=lambda: "")


@contextlib.contextmanager
def _memory(text: str) -> Iterator[str]:
    """Give the path of a file that is in memory only and gone behind the block."""
    descriptor = os.memfd_create("unshard")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
