"""Limits of a channel per client and address, with a real bridge. Other clients are not affected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient

CONFIG = """
channels:
  - {name: FREE, port: 0}
  - {name: ADDRESS, port: 0, max_clients_per_address: 2}
  - {name: PROXIED, port: 0, max_clients_per_address: 1, proxies: [127.0.0.1]}
  - {name: CONNECT, port: 0, max_connect_size: 200, max_packet_size: 64 KiB}
  - {name: RATE, port: 0, publish_rate: 100}
  - {name: BYTES, port: 0, publish_bytes: 10 KiB}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with at_work(BridgeProcess(tmp_path_factory.mktemp("abuse") / "data", config=CONFIG)) as process:
        yield process


def test_clients_of_one_address(bridge: BridgeProcess) -> None:
    """The third client is rejected, and accepted after one of the others has disconnected."""
    port = bridge.ports["ADDRESS"]
    with RawClient.connected(port, "a"), RawClient.connected(port, "b") as second:
        with RawClient(port, "c") as third:
            assert third.expect(Connack).return_code == 3
            third.expect_closed()
        second.disconnect()

        def comes_in() -> int:
            with RawClient(port, "c") as third:
                third.send(third.packet)
                return third.expect(Connack).return_code

        eventually(comes_in, 0)
    assert "max_clients_per_address (2) of 127.0.0.1 are connected" in bridge.log


def test_clients_of_one_address_behind_a_proxy(bridge: BridgeProcess) -> None:
    """The address of the client counts, not that of the proxy."""
    port = bridge.ports["PROXIED"]
    clients = []
    for number, address in enumerate(("192.0.2.1", "192.0.2.2")):
        clients.append(RawClient(port, f"p{number}"))
        clients[-1].send_bytes(f"PROXY TCP4 {address} 192.0.2.9 1 2\r\n".encode())
        assert clients[-1].connect().return_code == 0
    with RawClient(port, "p2") as third:
        third.send_bytes(b"PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n")
        third.expect_closed()
    for client in clients:
        client.disconnect()


def test_the_first_packet(bridge: BridgeProcess) -> None:
    """Unauthenticated clients can send little. Accepted clients can use the channel limits directly after CONNECT."""
    port = bridge.ports["CONNECT"]
    with RawClient(port, "x" * 48, level=5, user_name="u" * 400) as client:
        client.send(client.packet)
        assert client.expect(Connack).return_code == ReasonCode.PACKET_TOO_LARGE
    assert "max_connect_size: 466 bytes, 200 allowed" in bridge.log
    with RawClient(port, "y") as client:
        client.send_bytes(encode(Connect("y")) + encode(Publish("t", b"x" * 60_000, 1, False, False, 1)))
        assert client.expect(Connack).return_code == 0
        assert client.expect(Puback).packet_id == 1
    with RawClient(port, "z", level=5) as client:
        assert client.connect().return_code == 0
        client.send_bytes(encode(Publish("t", b"x" * 70_000, 0)))
        assert client.expect(Disconnect).reason_code == ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize(("channel", "count", "size"), [("RATE", 300, 10), ("BYTES", 60, 1_000)])
def test_rates(bridge: BridgeProcess, channel: str, count: int, size: int) -> None:
    """A client that sends more than its share is read later and loses nothing (delays: tests/unit/mqtt/test_rate.py)."""
    with RawClient.connected(bridge.ports[channel], "rate") as client:
        packets = [Publish("t", b"x" * size, 1, False, False, number) for number in range(1, count + 1)]
        for at in range(0, count, 10):
            client.send(*packets[at : at + 10])
            if at == 20:
                with RawClient.connected(bridge.ports["FREE"], "free") as other:
                    other.publish("t", b"x", 1)
        assert [client.wait_for(Puback).packet_id for _ in packets] == list(range(1, count + 1))
        client.ping()
