"""How telemetry channels are."""

from __future__ import annotations

from typing import Literal

import msgspec

ChannelState = Literal["running", "stopped", "starting", "stopping"]


class ChannelStatus(msgspec.Struct, kw_only=True):
    """A telemetry channel (MQSC: DISPLAY CHSTATUS CHLTYPE(MQTT))."""

    name: str
    state: ChannelState
    #: where it listens, or would
    endpoint: str
    tls: bool
    websocket: bool
    protocols: list[str]
    #: connections, those included that have sent no CONNECT
    connections: int
    #: clients that have been let in
    clients: int
    max_clients: int
    #: the configuration file, or DEFINE CHANNEL of MQSC
    defined_by: Literal["file", "command"] = "file"
    #: why it does not listen though it should; blank where it does
    problem: str = ""
