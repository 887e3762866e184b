"""The admin port: metrics, health and the console, by HTTP."""

from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.authentication import AuthenticationConfig, each_kind_once
from bridge.config.listener_tls import ListenerTlsConfig
from bridge.config.section import Address, FilePath, Port, Section, Truth, without_empty

TOKEN_FILE = "admin.tokens"
"""Name of the token file in the data directory of an embedded queue manager."""


class AdminConfig(Section):
    """The admin port: `/metrics`, `/healthz`, `/readyz` and the console."""

    # These stand before `address`, whose check asks for them: pydantic validates in the order of definition.
    tls: ListenerTlsConfig | None = None
    """TLS; None: none."""
    allow_plain_remote: Truth = False
    """Whether it may listen without TLS where other machines reach it: behind a proxy that ends TLS, say."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on; one that other machines reach needs `tls`, or `allow_plain_remote`."""
    port: Port | None = None
    """TCP port; 0 takes any free one. None: there is no admin port."""
    token_file: FilePath | None = None
    """Tokens by which people and programs show who they are: lines `NAME:RIGHT:TOKEN`, where RIGHT is `read` or `change`.
    None: `admin.tokens` in the data directory of an embedded queue manager, which the bridge makes with one token in it; and
    none for a queue manager of IBM MQ."""
    authentication: list[AuthenticationConfig] = Field(default_factory=list)
    """How users show who they are to the console, beside tokens: methods of a channel that judge user name and password."""
    administrators: list[Annotated[str, values.text(r"[!-~]{1,64}", "a user name without blanks")]] = Field(default=[])
    """Users of `authentication` that may change something; the others may read."""
    open_metrics: Truth = True
    """Whether `/metrics` is for everybody who reaches the port; else for who has a token. It names no client and no topic."""
    payloads: Truth = True
    """Whether the console shows what is in messages, to who may read. False: sizes and headers only."""

    @model_validator(mode="before")
    @classmethod
    def _empty_lists(cls, data: Any) -> Any:
        return without_empty(data, "authentication", "administrators")

    @field_validator("authentication")
    @classmethod
    def _methods(cls, methods: list[AuthenticationConfig]) -> list[AuthenticationConfig]:
        for index, one in enumerate(methods):
            if one.method in ("anonymous", "certificate", "scram"):
                expected = "password, jwt, ldap, queue-manager or plugin (a method that judges user name and password)"
                raise values.refusal(expected, index, "method")
        return each_kind_once(methods)

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        plain = info.data.get("allow_plain_remote") is False and info.data.get("tls", ...) is None
        if plain and not values.is_loopback(address):
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because tokens and passwords would travel without TLS (to"
                " let other machines in, write 'tls: ...', or 'allow_plain_remote: true' in this section)"
            )
        return address
