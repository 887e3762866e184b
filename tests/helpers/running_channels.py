"""The channels of a telemetry service, for commands of the queue manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bridge.administration.answers import ChannelState, ChannelStatus, ClientStatus
from bridge.mq.telemetry_channels import ClientChannelStatus, RunningChannels


class Running(RunningChannels):
    """A telemetry service with two channels and clients, which records requests."""

    active = True

    def __init__(self) -> None:
        self.states: dict[str, ChannelState] = {"A": "running", "B": "stopped"}
        self.requests: list[object] = []
        self.all = {
            running_client.status.client_id: running_client
            for running_client in (client("pump-1", "A"), client("pump-2", "A", connected=False))
        }

    def statuses(self) -> list[ChannelStatus]:
        return [
            ChannelStatus(
                name=name, state=state, endpoint="", tls=False, websocket=False, protocols=[], connections=3, clients=2,
                max_clients=9,
            )
            for name, state in self.states.items()
        ]  # fmt: skip

    def clients(self, wanted: Callable[[str], bool]) -> Iterator[ClientChannelStatus]:
        return (running_client for own, running_client in self.all.items() if wanted(own))

    def client(self, client_id: str) -> ClientChannelStatus | None:
        return self.all.get(client_id)

    def start(self, name: str) -> None:
        self.requests.append(("start", name))

    def stop(self, name: str, client_id: str | None = None) -> None:
        self.requests.append(("stop", name, client_id))

    def purge(self, name: str, client_id: str | None = None) -> None:
        self.requests.append(("purge", name, client_id))

    def changed(self) -> None:
        self.requests.append("changed")


def client(client_id: str, channel: str, *, connected: bool = True) -> ClientChannelStatus:
    status = ClientStatus(
        client_id=client_id,
        connected=connected,
        channel=channel,
        address="192.0.2.1:5000" if connected else "",
        user="plant",
        protocol_level=4 if connected else 0,
        durable=True,
        subscriptions=1,
        waiting=7,
        in_flight=3,
        since=0.0,
        expires_at=0.0,
    )
    return ClientChannelStatus(
        status=status,
        user_name="carol",
        keep_alive=60,
        unreleased=2,
        messages_received=11,
        messages_sent=5,
        last_message_at=0.0,
    )
