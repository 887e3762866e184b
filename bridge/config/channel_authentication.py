"""Channel authentication records, in the manner of MQ's `SET CHLAUTH`: who may connect by which channel, and as whom."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bridge.config import values
from bridge.config.address_pattern import address_pattern
from bridge.config.distinguished_name import name_pattern
from bridge.config.section import Section, Truth, UserName, without_empty

RecordType = Literal["ADDRESSMAP", "USERMAP", "SSLPEERMAP", "BLOCKUSER", "BLOCKADDR"]
UserSource = Literal["MAP", "CHANNEL", "NOACCESS"]

_PROFILE = values.text(r"[A-Za-z0-9._/%]{0,20}\*?", "a channel name, or the beginning of one with * behind it")
_ADDRESS = values.read_by(
    address_pattern,
    r"[0-9A-Fa-f.:*-]{1,64}",
    "an IP address, in which a part may be * or a range such as 1-5 (no host name)",
)
_DN = values.read_by(name_pattern, r"[^\x00-\x1f]{1,1024}", "a distinguished name such as CN=pump*,O=Example")

#: What a record of each type has beside channel, type, description and warn.
_OF_MAPS = ("user_source", "mcauser")
KEYS: dict[str, tuple[str, ...]] = {
    "ADDRESSMAP": ("address", *_OF_MAPS),
    "USERMAP": ("client_user", "address", *_OF_MAPS),
    "SSLPEERMAP": ("ssl_peer", "ssl_cert_issuer", "address", *_OF_MAPS),
    "BLOCKUSER": ("user_list",),
    "BLOCKADDR": ("address_list",),
}
_NEEDED = {
    "ADDRESSMAP": ("address",),
    "USERMAP": ("client_user",),
    "SSLPEERMAP": ("ssl_peer",),
    "BLOCKUSER": ("user_list",),
    "BLOCKADDR": ("address_list",),
}


class ChannelAuthenticationConfig(Section):
    """A channel authentication record (MQ: SET CHLAUTH)."""

    channel: Annotated[str, _PROFILE] = "*"
    """The channel that it is for, or those whose names begin so (`PLAIN.*`)."""
    type: Annotated[RecordType, values.choice(RecordType)]
    """What it goes by: the client's address, its user name, its certificate; or what it keeps out: users, addresses."""
    address: Annotated[str, _ADDRESS] | None = None
    """The client's IP address, in which a part may be * or a range."""
    client_user: Annotated[str, values.text(r"[!-~]{1,64}", "a user name of 1 to 64 characters without blanks")] | None = None
    """The user that the client says, or has shown, that it is (MQ: CLNTUSER)."""
    ssl_peer: Annotated[str, _DN] | None = None
    """What the distinguished name of its certificate has to have: attributes in any order, * at the ends of values."""
    ssl_cert_issuer: Annotated[str, _DN] | None = None
    """The same of who issued that certificate."""
    user_source: Annotated[UserSource, values.choice(UserSource)] = "MAP"
    """MAP: the client acts as `mcauser`; CHANNEL: as the channel has it; NOACCESS: it is refused (MQ: USERSRC)."""
    mcauser: UserName | None = None
    """The user that the client acts as."""
    user_list: list[Annotated[str, values.text(r"[!-~]{1,64}", "a user name, or *MQADMIN")]] = Field(default=[])
    """Users that are refused; *MQADMIN stands for those with privileges."""
    address_list: list[Annotated[str, _ADDRESS]] = Field(default=[])
    """Addresses that are refused, in the form of `address`."""
    warn: Truth = False
    """Whether a client that it would refuse is let in, and the log says so."""
    description: str = ""
    """What it is for."""

    @model_validator(mode="before")
    @classmethod
    def _empty_list(cls, data: Any) -> Any:
        return without_empty(data, "user_list", "address_list")

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        allowed = {"channel", "type", "warn", "description", *KEYS[self.type]}
        if other := sorted(self.model_fields_set - allowed):
            raise values.refusal(f"no {other[0]} in a record of type {self.type}", other[0])
        for key in _NEEDED[self.type]:
            if not getattr(self, key):
                raise values.refusal(f"{key} in a record of type {self.type}", "type")
        if "mcauser" in KEYS[self.type] and (self.user_source == "MAP") != (self.mcauser is not None):
            expected = "mcauser, which user_source MAP maps to" if self.mcauser is None else "user_source MAP beside mcauser"
            raise values.refusal(expected, "type" if self.mcauser is None else "user_source")
        if self.type == "BLOCKADDR" and self.channel != "*":
            raise values.refusal("channel '*' in a record of type BLOCKADDR", "channel")
        return self

    @property
    def key(self) -> tuple[str, ...]:
        """Return what no two records have in common, as MQ's SET CHLAUTH has it."""
        by = (self.address, self.client_user, self.ssl_peer, self.ssl_cert_issuer)
        return (self.channel, self.type, *(one or "" for one in by))
