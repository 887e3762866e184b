"""TLS of connections that are made: by links to brokers, and by pipelines to the embedded queue manager's listener."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from bridge.config import values
from bridge.config.section import FilePath, Section, Truth


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
