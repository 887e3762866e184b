"""TLS of listeners, where clients connect, and of the connections that the bridge itself makes."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridge.config import values
from bridge.config.values import FilePath, Section, Truth, without_empty

ClientCertificates = Literal["never", "optional", "required"]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]

_VARIABLE = values.text(r"[A-Za-z_][A-Za-z0-9_]{0,254}", "the name of an environment variable (not the password)")
_CREDENTIAL = values.text(r"[A-Za-z0-9._:-]{1,255}", "the name of a credential of the systemd unit (not the password)")

#: CipherSpecs of MQ that name no cipher of their own: the versions that each allows.
ANY_CIPHER: dict[str, tuple[TlsVersion, ...]] = {
    "ANY_TLS12": ("TLSv1.2",),
    "ANY_TLS12_OR_HIGHER": ("TLSv1.2", "TLSv1.3"),
    "ANY_TLS13": ("TLSv1.3",),
    "ANY_TLS13_OR_HIGHER": ("TLSv1.3",),
}
#: CipherSpecs of MQ for TLS 1.2 ("Enabling CipherSpecs"), those with forward secrecy: their names in OpenSSL.
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
    """TLS of a listener. Its files are looked at again on a reload, and when they change; who is connected stays."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "key_password": "no password in this file, because too many read it (write it into a file that the bridge alone may"
        " read, and name that as key_password_file)"
    }

    certificate_file: FilePath
    """The certificate of the listener, PEM, with those that lead from it to an authority that clients trust behind it."""
    key_file: FilePath | None = None
    """The private key of that certificate, PEM; None: it stands in `certificate_file`."""
    key_password_file: FilePath | None = None
    """File whose first line is the password of the private key."""
    key_password_credential: Annotated[str, _CREDENTIAL] | None = None
    """The systemd credential (LoadCredential=, LoadCredentialEncrypted=) that is that password."""
    key_password_variable: Annotated[str, _VARIABLE] | None = None
    """Environment variable that has that password."""
    client_certificates: Annotated[ClientCertificates, values.choice(ClientCertificates)] = "never"
    """Whether clients are asked for a certificate, and have to have one (MQ: SSLCAUTH)."""
    ca_file: FilePath | None = None
    """The authorities, PEM, whose certificates clients may have."""
    crl_file: FilePath | None = None
    """Lists of certificates that these have revoked, PEM: one of each authority. None: none is looked at."""
    versions: list[Annotated[TlsVersion, values.choice(TlsVersion)]] = Field(default=["TLSv1.2", "TLSv1.3"])
    """The versions of TLS that it speaks."""
    ciphers: Annotated[str, values.text(r"[!-~]{1,1024}", "a CipherSpec of MQ, or a list of ciphers as OpenSSL has it")] = (
        "ANY_TLS12_OR_HIGHER"
    )
    """A CipherSpec (MQ: SSLCIPH), or a list as OpenSSL has it, which says nothing of TLS 1.3."""

    @model_validator(mode="before")
    @classmethod
    def _empty_list(cls, data: Any) -> Any:
        return without_empty(data, "versions")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if not self.versions or len(set(self.versions)) < len(self.versions):
            raise values.refusal("a list of TLSv1.2 or TLSv1.3 or both, each at most once", "versions")
        if self.client_certificates != "never" and self.ca_file is None:
            raise values.refusal(
                f"a ca_file, whose certificates clients may have, beside client_certificates: {self.client_certificates}",
                "client_certificates",
            )
        if self.crl_file is not None and self.client_certificates == "never":
            raise values.refusal("no crl_file where clients are asked for no certificate (client_certificates)", "crl_file")
        named = [name for name in _PASSWORDS if getattr(self, name) is not None]
        if len(named) > 1:
            raise values.refusal(f"one of {values.listing(list(_PASSWORDS), 'and')}", named[1])
        if not self.spoken:
            raise values.refusal(
                f"a CipherSpec of a version in versions ({values.listing(list(self.versions), 'and')})", "ciphers"
            )
        if self.ciphers.startswith("TLS_AES_") or self.ciphers.startswith("TLS_CHACHA20_"):
            raise values.refusal("ANY_TLS13 (among the ciphers of TLS 1.3 none can be chosen)", "ciphers")
        return self

    @property
    def spoken(self) -> list[TlsVersion]:
        """Return the versions that `versions` and `ciphers` both allow."""
        allowed = ANY_CIPHER.get(self.ciphers, ("TLSv1.2",) if self.ciphers in CIPHER_SPECS else ("TLSv1.2", "TLSv1.3"))
        return [version for version in self.versions if version in allowed]


_PASSWORDS = ("key_password_file", "key_password_credential", "key_password_variable")


class ClientTlsConfig(Section):
    """TLS of a connection that is made. An empty section trusts what the machine trusts, and checks the host name."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "key_password": "no password in this file, because too many read it (name an environment variable that has it"
        " as key_password_variable)"
    }

    ca_file: FilePath | None = None
    """Certificates of the authorities to trust, PEM; None: those of the machine."""
    certificate_file: FilePath | None = None
    """The certificate of its own, PEM, to show where the other end asks for one."""
    key_file: FilePath | None = None
    """The private key of that certificate, PEM."""
    key_password_variable: Annotated[
        str, values.text(r"[A-Za-z_][A-Za-z0-9_]{0,254}", "the name of an environment variable (not the password)")
    ] | None = None
    """Environment variable with the password of the private key."""
    check_host_name: Truth = True
    """Whether the certificate of the other end has to be for the host that is connected to."""

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if self.certificate_file is None and self.key_file is not None:
            raise values.refusal("no private key without a certificate_file that it belongs to", "key_file")
        return self
