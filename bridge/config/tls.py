"""TLS settings of listeners and of outgoing connections."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridge.config import values
from bridge.config.values import FilePath, SecretPath, Section, Truth, VariableName

ClientCertificates = Literal["never", "optional", "required"]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]

_CREDENTIAL = values.text(r"[A-Za-z0-9._:-]{1,255}", "the name of a credential of the systemd unit (not the password)")

#: CipherSpecs of MQ that select TLS versions rather than a cipher.
ANY_CIPHER: dict[str, tuple[TlsVersion, ...]] = {
    "ANY_TLS12": ("TLSv1.2",),
    "ANY_TLS12_OR_HIGHER": ("TLSv1.2", "TLSv1.3"),
    "ANY_TLS13": ("TLSv1.3",),
    "ANY_TLS13_OR_HIGHER": ("TLSv1.3",),
}
#: CipherSpecs of MQ for TLS 1.2 with forward secrecy ("Enabling CipherSpecs") -> OpenSSL names.
CIPHER_SPECS = {
    "ECDHE_ECDSA_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE_ECDSA_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE_RSA_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "ECDHE_RSA_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "ECDHE_ECDSA_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE_ECDSA_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE_RSA_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE_RSA_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
}


class ListenerTlsConfig(Section):
    """TLS of a listener. The bridge reads the files again when they change and on a reload. Existing connections are kept."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "key_password": "no password in this file, because this file is not secret (write it to a file that only the bridge"
        " may read, and name that as key_password_file)"
    }

    certificate_file: FilePath
    """Certificate chain of the listener (PEM): its own certificate first, then the intermediate certificates."""
    key_file: SecretPath | None = None
    """Private key of that certificate (PEM). None: `certificate_file` contains it."""
    key_password_file: SecretPath | None = None
    """File whose first line is the password of the private key."""
    key_password_credential: Annotated[str, _CREDENTIAL] | None = None
    """Name of the systemd credential that contains that password (LoadCredential=, LoadCredentialEncrypted=)."""
    key_password_variable: VariableName | None = None
    """Environment variable that contains that password."""
    client_certificates: Annotated[ClientCertificates, values.choice(ClientCertificates)] = "never"
    """Whether the listener never requests client certificates, accepts clients without one, or requires one (MQ:
    SSLCAUTH)."""
    ca_file: FilePath | None = None
    """Certificates of the authorities that may issue client certificates (PEM)."""
    crl_file: FilePath | None = None
    """Certificate revocation lists (PEM), one for each of these authorities. None: revocation is not checked."""
    versions: list[Annotated[TlsVersion, values.choice(TlsVersion)]] = Field(default=["TLSv1.2", "TLSv1.3"])
    """Accepted TLS versions."""
    ciphers: Annotated[
        str, values.text(r"[!-~]{1,1024}", "a CipherSpec of MQ, or a list of ciphers as OpenSSL has it")
    ] = "ANY_TLS12_OR_HIGHER"
    """A CipherSpec (MQ: SSLCIPH), or an OpenSSL cipher list. The latter does not affect TLS 1.3."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if not self.versions or len(set(self.versions)) < len(self.versions):
            raise values.refusal("a list of TLSv1.2 or TLSv1.3 or both, each at most once", "versions")
        if self.client_certificates != "never" and self.ca_file is None:
            raise values.refusal(
                f"a ca_file, which contains the CAs of clients, together with client_certificates: "
                f"{self.client_certificates}",
                "client_certificates",
            )
        if self.crl_file is not None and self.client_certificates == "never":
            raise values.refusal(
                "no crl_file if clients are not asked for a certificate (client_certificates)", "crl_file"
            )
        options = [name for name in _PASSWORDS if getattr(self, name) is not None]
        if len(options) > 1:
            raise values.refusal(f"one of {values.listing(list(_PASSWORDS), 'and')}", options[1])
        if not self.accepted_versions:
            raise values.refusal(
                f"a CipherSpec of a version in versions ({values.listing(list(self.versions), 'and')})", "ciphers"
            )
        if self.ciphers.startswith("TLS_AES_") or self.ciphers.startswith("TLS_CHACHA20_"):
            raise values.refusal("ANY_TLS13 (among the ciphers of TLS 1.3 none can be chosen)", "ciphers")
        return self

    def files_with_secrets(self) -> Iterator[tuple[str, Path]]:
        """Yield the private key and its password. A certificate file without a key file contains the key."""
        yield from super().files_with_secrets()
        if self.key_file is None:
            yield "certificate_file", self.certificate_file

    @property
    def accepted_versions(self) -> list[TlsVersion]:
        """The TLS versions that both `versions` and `ciphers` allow."""
        allowed = ANY_CIPHER.get(self.ciphers, ("TLSv1.2",) if self.ciphers in CIPHER_SPECS else ("TLSv1.2", "TLSv1.3"))
        return [version for version in self.versions if version in allowed]


_PASSWORDS = ("key_password_file", "key_password_credential", "key_password_variable")


class ClientTlsConfig(Section):
    """TLS of an outgoing connection. An empty section uses the system's trusted authorities and checks the host name."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "key_password": "no password in this file, because this file is not secret (name an environment variable that"
        " contains it as key_password_variable)"
    }

    ca_file: FilePath | None = None
    """Certificates of the trusted authorities (PEM). None: the system's."""
    certificate_file: FilePath | None = None
    """The bridge's client certificate (PEM), presented if the server requests one."""
    key_file: SecretPath | None = None
    """Private key of that certificate (PEM)."""
    key_password_variable: VariableName | None = None
    """Environment variable that contains the password of the private key."""
    check_host_name: Truth = True
    """Whether the server's certificate must match the host name of the connection."""

    def files_with_secrets(self) -> Iterator[tuple[str, Path]]:
        """Yield the private key and its password. A certificate file without a key file contains the key."""
        yield from super().files_with_secrets()
        if self.certificate_file is not None and self.key_file is None:
            yield "certificate_file", self.certificate_file

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if self.certificate_file is None and self.key_file is not None:
            raise values.refusal("no private key without a certificate_file that it belongs to", "key_file")
        return self
