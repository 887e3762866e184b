"""A certificate authority for tests, made with the package cryptography: valid and invalid certificates."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = datetime.timedelta(hours=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """Issue certificates into a directory: NAME.pem and NAME.key. The authority's own, `name`, ends in `ends` hours."""

    def __init__(self, directory: Path, name: str = "ca", ends: float = 24.0) -> None:
        self.directory = directory
        self.key: Key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder(self.subject, self.subject, self.key.public_key(), x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(now + ends * HOUR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self._certificate = certificate
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._revoked: list[int] = []

    def issue(
        self,
        name: str,
        *,
        common_name: str | None = None,
        alternative: str | None = "localhost",
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
        begins: float = -1.0,
        ends: float = 24.0,
        key: Key | None = None,
        password: str | None = None,
    ) -> x509.Certificate:
        """Make a certificate and its key. `begins` and `ends` are hours from now."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
                x509.NameAttribute(NameOID.COMMON_NAME, name if common_name is None else common_name),
            ]
        )
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(self.subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now + begins * HOUR)
            .not_valid_after(now + ends * HOUR)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if alternative is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(alternative)]), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password.encode())
        (self.directory / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
        key_file = self.directory / f"{name}.key"
        key_file.touch(0o600)
        key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, protection))
        return certificate

    def client(self, name: str, **options: object) -> x509.Certificate:
        """Make the certificate of a client."""
        return self.issue(name, alternative=None, usage=ExtendedKeyUsageOID.CLIENT_AUTH, **options)

    def key_repository(self, name: str, password: str, *, label: str, trusts: Authority | None = None) -> Path:
        """Write NAME.p12: a client's certificate and its key with a label, and the certificate of a trusted authority."""
        key = serialization.load_pem_private_key((self.directory / f"{name}.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((self.directory / f"{name}.pem").read_bytes())
        assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
        protection = serialization.BestAvailableEncryption(password.encode())
        trusted = [(trusts or self)._certificate]
        file = self.directory / f"{name}.p12"
        file.write_bytes(pkcs12.serialize_key_and_certificates(label.encode(), key, certificate, trusted, protection))
        return file

    def revoke(self, *certificates: x509.Certificate, next_update: float = 24.0) -> None:
        """Write crl.pem, the list of revoked certificates. `next_update` is hours from now."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder(self.subject, now - 2 * HOUR, now + next_update * HOUR)
        for certificate in certificates:
            entry = x509.RevokedCertificateBuilder(certificate.serial_number, now - HOUR).build()
            builder = builder.add_revoked_certificate(entry)
        signed = builder.sign(self.key, hashes.SHA256())
        (self.directory / "crl.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def make(directory: Path, days: int = 2) -> None:
    """Make ca.pem, and server and client, each .pem and .key. The server's is for localhost. The client's key has the
    password p4ss.
    """
    authority = Authority(directory, ends=24.0 * days)
    authority.issue("server", common_name="localhost", ends=24.0 * days)
    authority.client("client", ends=24.0 * days, password="p4ss")
