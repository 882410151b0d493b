"""Self-made certificates for tests of TLS: an authority and the certificates that it issues."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BEGINNING = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a folder; `path` is its own public certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        folder.mkdir(parents=True, exist_ok=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = self._builder(self.name, self.key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(made.add_extension(usage, True).sign(self.key, hashes.SHA256())))

    def issue(self, common_name: str, address: str | None = None, until: datetime.datetime = END) -> Pair:
        """Issue a certificate, for a host if an address is given."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        made = self._builder(name, key.public_key(), until)
        if address:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            made = made.add_extension(names, False)
        pair = Pair(self.folder / f"{common_name}.pem", self.folder / f"{common_name}.key")
        pair.certificate.write_bytes(_pem(made.sign(self.key, hashes.SHA256())))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime.datetime = END
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(issuer_name=self.name, subject_name=name, public_key=key)
        return builder.serial_number(x509.random_serial_number()).not_valid_before(BEGINNING).not_valid_after(until)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
