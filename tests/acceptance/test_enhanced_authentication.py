"""Enhanced authentication (MQTT 5 section 4.12) with a method of the tests, which the bridge finds by its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mqtt.packets import (
    Auth,
    AuthProperties,
    Connack,
    ConnectProperties,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
)
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import RawClient
from tests.helpers.sum_method import NAME, install

CONTINUE, AGAIN, SUCCESS = ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE, ReasonCode.SUCCESS


def config(*methods: str) -> str:
    return f"channels: [{{name: PLAIN.MQTT, authentication_methods: [{', '.join(methods)}], connect_timeout: 2 s}}]\n"


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge on the embedded queue manager. Clients are authenticated before the queue manager is involved."""
    directory = tmp_path_factory.mktemp("authentication")
    process = BridgeProcess(directory / "data", config=config(NAME), env=install(directory / "site")).start()
    process.mqsc("DEFINE QLOCAL(SAID)\nDEFINE SUB(SAID) TOPICSTR('said/#') DEST(SAID)\n")
    yield process
    process.discard()  # the failures of the method are in its log


def client_of(
    bridge: BridgeProcess, rounds: bytes | None, method: str = NAME, user_name: str | None = None
) -> RawClient:
    properties = ConnectProperties(authentication_method=method, authentication_data=rounds)
    return RawClient(bridge.port, "dev", level=5, user_name=user_name, properties=properties)


def auth(reason_code: ReasonCode, authentication_data: bytes | None) -> Auth:
    return Auth(reason_code, AuthProperties(NAME, authentication_data))


def exchange(client: RawClient, first: Packet, *responses: bytes) -> Packet:
    """Send a packet, respond to each challenge, and return the final packet."""
    client.send(first)
    for number, response in enumerate(responses, 1):
        assert client.expect(Auth) == auth(CONTINUE, b"%d" % (41 * number))
        client.send(auth(CONTINUE, response))
    return client.receive()


def user_of(bridge: BridgeProcess, client: RawClient) -> str:
    """Return the user that the queue manager sees."""
    client.send(Publish("said/x", b"", 1, False, False, 1))
    assert client.expect(Puback) == Puback(1)
    (message,) = bridge.mq_json("get", "SAID")
    user: str = message["md"]["UserIdentifier"]
    return user


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_challenges_and_responses(bridge: BridgeProcess, rounds: int) -> None:
    with client_of(bridge, b"%d" % rounds, user_name="claimed") as client:
        connack = exchange(client, client.packet, *[b"alice %d" % (41 * number + 1) for number in range(1, rounds + 1)])
        assert isinstance(connack, Connack)
        assert connack.return_code == SUCCESS
        assert connack.properties is not None
        assert connack.properties.authentication_method == NAME
        assert connack.properties.authentication_data == (b"welcome" if rounds else None)
        assert user_of(bridge, client) == ("alice" if rounds else "claimed")


@pytest.mark.parametrize(
    ("rounds", "responses", "reason_code"),
    [
        (b"1", [b"alice 43"], ReasonCode.NOT_AUTHORIZED),
        (b"2", [b"alice 42", b""], ReasonCode.NOT_AUTHORIZED),
        (b"fail", [], ReasonCode.UNSPECIFIED_ERROR),
        (b"1", [b"fail"], ReasonCode.UNSPECIFIED_ERROR),
        (b"hang", [], ReasonCode.SERVER_BUSY),
    ],
)
def test_a_rejected_client(
    bridge: BridgeProcess, rounds: bytes, responses: list[bytes], reason_code: ReasonCode
) -> None:
    with RawClient.connected(bridge.port, "beside", level=5) as beside, client_of(bridge, rounds) as client:
        assert exchange(client, client.packet, *responses) == Connack(reason_code)
        client.expect_closed()
        beside.ping()


def test_authentication_again(bridge: BridgeProcess) -> None:
    with client_of(bridge, b"1") as client:
        assert isinstance(exchange(client, client.packet, b"alice 42"), Connack)
        client.send(auth(AGAIN, b"2"))
        assert client.expect(Auth) == auth(CONTINUE, b"41")
        client.send(Pingreq(), auth(CONTINUE, b"alice 42"))
        assert client.expect(Pingresp) == Pingresp()
        assert client.expect(Auth) == auth(CONTINUE, b"82")
        client.send(auth(CONTINUE, b"alice 83"))
        assert client.expect(Auth) == auth(SUCCESS, b"welcome")
        assert user_of(bridge, client) == "alice"
        assert exchange(client, auth(AGAIN, b"1"), b"alice 42") == auth(SUCCESS, b"welcome")


@pytest.mark.parametrize("response", [b"alice 0", b"bob 42"])
def test_failed_authentication_again(bridge: BridgeProcess, response: bytes) -> None:
    with client_of(bridge, b"1") as client:
        exchange(client, client.packet, b"alice 42")
        assert exchange(client, auth(AGAIN, b"1"), response) == Disconnect(ReasonCode.NOT_AUTHORIZED)
        client.expect_closed()


@pytest.mark.parametrize(("method", "why"), [("BROKEN", "cannot be loaded")])
def test_a_missing_method_ends_the_start_with_an_error(tmp_path: Path, method: str, why: str) -> None:
    process = BridgeProcess(tmp_path / "data", config=config(method), env=install(tmp_path / "site"))
    with pytest.raises(AssertionError, match=f"authentication method '{method}'.*{why}"):
        process.start()
    process.discard()
