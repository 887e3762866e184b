"""Negotiation of attributes between a client and a server-connection channel."""

from __future__ import annotations

from typing import NamedTuple

from bridge.mq.embedded.attributes import Value, defaults


class ChannelAgreement(NamedTuple):
    """The attributes of a client's channel, negotiated between its two ends."""

    max_message_length: int
    sharing_conversations: int
    #: seconds
    heartbeat_interval: int


def agreed(channel: dict[str, Value] | None, longest: int, client: ChannelAgreement) -> ChannelAgreement:
    """Return the negotiated attributes: the lower limits, and the longer heartbeat interval.

    A maximum message length of 0 means `longest`, the queue manager's maximum. An undefined channel (None) has no limits.
    Source: IBM MQ documentation, "Maximum message length (MAXMSGL)", "Sharing conversations (SHARECNV)",
    "Heartbeat interval (HBINT)".
    """
    wanted = client.max_message_length or longest
    if channel is None:
        interval = int(defaults("SVRCONN")["HBINT"])
        return ChannelAgreement(wanted, client.sharing_conversations, max(client.heartbeat_interval, interval))
    return ChannelAgreement(
        min(wanted, int(channel["MAXMSGL"]) or longest),
        min(client.sharing_conversations, int(channel["SHARECNV"])),
        max(client.heartbeat_interval, int(channel["HBINT"])),
    )
