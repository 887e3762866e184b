"""Evaluation of channel authentication records: which clients may connect, and as which user (IBM MQ, "SET CHLAUTH").

Of the mapping records, the most specific one applies: by channel name first, then by type (SSLPEERMAP before USERMAP before
ADDRESSMAP), then by certificate and address. BLOCKADDR is checked before them, BLOCKUSER after them with the resulting user.
Records with `warn` reject no client, but log which clients they would have rejected.

Unlike in IBM MQ, a client becomes a privileged user only if a record maps it to that user, regardless of BLOCKUSER.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from bridge.config.authentication import ChannelAuthenticationConfig, address_pattern, matches_name, name_pattern
from bridge.config.channel import ChannelConfig
from bridge.security.privileged import as_mq_has_it

#: The kind of the rows in which a queue manager stores records.
KIND: Final = "CHLAUTH"
#: Represents privileged users in a user list.
PRIVILEGED: Final = "*MQADMIN"
#: IBM MQ's default record: no client becomes an administrator.
DEFAULT_RECORDS: Final = (
    ChannelAuthenticationConfig(
        channel="*", type="BLOCKUSER", user_list=[PRIVILEGED], description="Default rule to disallow privileged users"
    ),
)
_KINDS: Final = {"SSLPEERMAP": 2, "USERMAP": 1, "ADDRESSMAP": 0}


class Connecting(msgspec.Struct, frozen=True):
    """A connecting client."""

    channel: str
    #: IP address, or "" on a Unix socket
    address: str = ""
    #: "" without a user name
    user: str = ""
    #: distinguished names of the certificate's subject and issuer, most specific part first, or "" without a certificate
    subject: str = ""
    issuer: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """The result of evaluating the records for a client."""

    #: why the client is rejected, for the log, or "" if it is accepted
    refusal: str = ""
    #: the user that a record maps the client to, or None if the channel's own rules determine the user
    mcauser: str | None = None
    #: reasons of records with `warn`
    warnings: tuple[str, ...] = ()
    #: the record that decided, or None
    record: ChannelAuthenticationConfig | None = None


class ChannelAuthenticationRecords:
    """The records of a configuration, and of the queue manager if it has its own."""

    def __init__(
        self,
        records: Sequence[ChannelAuthenticationConfig],
        privileged: Callable[[str], bool],
        defaults: Sequence[ChannelAuthenticationConfig] = DEFAULT_RECORDS,
    ) -> None:
        """Create the records; `privileged` returns whether a user is part of `*MQADMIN`.

        `defaults` are IBM MQ's default records, without those that were removed. A record with the same key replaces a
        default one.
        """
        own = {record.key for record in records}
        self.records = [*records, *(record for record in defaults if record.key not in own)]
        self._privileged = privileged
        self._maps = sorted(
            (record for record in self.records if record.type in _KINDS), key=_specificity, reverse=True
        )

    def blocked_address(self, address: str) -> str:
        """Return why all clients of an address are rejected, or ""."""
        for record in self.records:
            if record.type == "BLOCKADDR" and not record.warn and _is_among(address, record.address_list):
                return f"its address is blocked {_named(record)}"
        return ""

    def verdict(self, client: Connecting, own_user: str) -> Verdict:
        """Evaluate the records for a client. `own_user` is the client's MQ user according to its channel's own rules."""
        warnings: list[str] = []
        for record in self.records:
            if record.type == "BLOCKADDR" and _is_among(client.address, record.address_list):
                if not record.warn:
                    return Verdict(f"its address is blocked {_named(record)}", record=record)
                warnings.append(f"its address would be blocked {_named(record)}")
        mapping = next((record for record in self._maps if _matches(record, client)), None)
        mcauser = None
        if mapping is not None and mapping.user_source == "NOACCESS":
            if not mapping.warn:
                return Verdict(f"it has no access {_named(mapping)}", record=mapping)
            warnings.append(f"it would have no access {_named(mapping)}")
        elif mapping is not None and mapping.user_source == "MAP":
            mcauser = mapping.mcauser
        user = mcauser or own_user
        blocking = self._blocking(client.channel, user, mapped=mcauser is not None)
        if blocking is not None:
            if not blocking.warn:
                return Verdict(f"user {user!r} is blocked {_named(blocking)}", record=blocking)
            warnings.append(f"user {user!r} would be blocked {_named(blocking)}")
        if mcauser is None and self._privileged(user):
            reason = f"{user!r} is a privileged user, and no record maps the client to it"
            return Verdict(reason, None, tuple(warnings))
        return Verdict("", mcauser, tuple(warnings), mapping)

    def _blocking(self, channel: str, user: str, *, mapped: bool) -> ChannelAuthenticationConfig | None:
        """Return the record that blocks a user, from the most specific matching channel profile, or None.

        A record that maps a client to a privileged user does so intentionally, so `*MQADMIN` does not block that user.
        """
        blocks = [
            record for record in self.records if record.type == "BLOCKUSER" and matches_channel(record.channel, channel)
        ]
        if not blocks:
            return None
        record = max(blocks, key=lambda record: _exactness(record.channel))
        is_named = as_mq_has_it(user) in map(as_mq_has_it, record.user_list)
        is_named = is_named or (PRIVILEGED in record.user_list and not mapped and self._privileged(user))
        return record if is_named else None


def is_default(key: tuple[str, ...]) -> bool:
    """Return whether a key belongs to one of IBM MQ's default records."""
    return any(record.key == key for record in DEFAULT_RECORDS)


class ChannelAuthenticationRegister:
    """The current records of the configuration file and of commands. Records of the file take precedence."""

    def __init__(self, privileged: Callable[[str], bool]) -> None:
        self._privileged = privileged
        self.of_file: Sequence[ChannelAuthenticationConfig] = ()
        self._channels: Mapping[str, ChannelConfig] = {}
        self._of_commands: dict[tuple[str, ...], ChannelAuthenticationConfig] = {}
        #: keys of default records that commands have removed
        self._removed: set[tuple[str, ...]] = set()
        self._at_work: ChannelAuthenticationRecords | None = None

    @property
    def of_commands(self) -> list[ChannelAuthenticationConfig]:
        """The records set by commands."""
        return list(self._of_commands.values())

    @property
    def at_work(self) -> ChannelAuthenticationRecords:
        """All records, for evaluation."""
        if self._at_work is None:
            own = {record.key for record in self.of_file}
            set_by_commands = [record for key, record in self._of_commands.items() if key not in own]
            defaults = [record for record in DEFAULT_RECORDS if record.key not in self._removed]
            self._at_work = ChannelAuthenticationRecords([*self.of_file, *set_by_commands], self._privileged, defaults)
        return self._at_work

    @property
    def records(self) -> Sequence[ChannelAuthenticationConfig]:
        """All records, including IBM MQ's defaults."""
        return self.at_work.records

    def known(self, key: tuple[str, ...]) -> ChannelAuthenticationConfig | None:
        """Return the record with a key, or None."""
        return next((record for record in self.records if record.key == key), None)

    def use_file(self, records: Sequence[ChannelAuthenticationConfig], channels: Sequence[ChannelConfig] = ()) -> None:
        """Set the configuration file's records, and the channels they apply to."""
        self.of_file, self._at_work = records, None
        self._channels = {channel.name: channel for channel in channels}

    def own_user(self, channel: str, user: str) -> str:
        """Return the MQ user of a client by its channel's own rules, or "" if it depends on the client identifier."""
        config = self._channels.get(channel)
        if config is not None and config.use_client_id:
            return ""
        return as_mq_has_it((config.mcauser if config is not None else None) or user)

    def set(self, record: ChannelAuthenticationConfig) -> None:
        """Set a record from a command."""
        self._of_commands[record.key] = record
        self._removed.discard(record.key)
        self._at_work = None

    def forget(self, key: tuple[str, ...]) -> None:
        """Remove a record set by a command, or a default record."""
        self._of_commands.pop(key, None)
        if is_default(key):
            self._removed.add(key)
        self._at_work = None


def _named(record: ChannelAuthenticationConfig) -> str:
    return f"by channel authentication record {record.channel!r} of type {record.type}"


def _matches(record: ChannelAuthenticationConfig, client: Connecting) -> bool:
    return (
        matches_channel(record.channel, client.channel)
        and (record.address is None or address_pattern(record.address).matches(client.address))
        and (record.client_user is None or record.client_user == client.user.rstrip(" "))
        and (record.ssl_peer is None or (bool(client.subject) and matches_name(record.ssl_peer, client.subject)))
        and (record.ssl_cert_issuer is None or matches_name(record.ssl_cert_issuer, client.issuer))
    )


def _is_among(address: str, patterns: Sequence[str]) -> bool:
    return any(address_pattern(pattern).matches(address) for pattern in patterns)


def _specificity(record: ChannelAuthenticationConfig) -> tuple[object, ...]:
    peer = record.ssl_peer or ""
    attributes = len(name_pattern(peer)) if peer else 0
    return (
        _exactness(record.channel),
        _KINDS[record.type],
        (attributes, -peer.count("*"), record.ssl_cert_issuer is not None, len(peer)),
        address_pattern(record.address or "*").specificity,
    )


def _exactness(profile: str) -> tuple[bool, int]:
    return not profile.endswith("*"), len(profile)


def matches_channel(profile: str, channel: str) -> bool:
    """Return whether a profile, which may end in `*`, matches a channel."""
    return channel.startswith(profile[:-1]) if profile.endswith("*") else channel == profile
