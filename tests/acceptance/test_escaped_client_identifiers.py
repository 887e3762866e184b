"""`client_identifiers: escaped`: client identifiers that are not valid queue manager names, on IBM MQ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.mqtt.packets import Publish, PublishProperties
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridges import at_work
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

ESCAPED = "  client_identifiers: escaped\n"


@pytest.fixture(scope="module")
def bridge(environments: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteBridgeProcess]:
    with at_work(RemoteBridgeProcess(tmp_path_factory.mktemp("escaped") / "data", settings=ESCAPED)) as process:
        yield process


def test_a_durable_session_with_an_escaped_name(bridge: RemoteBridgeProcess) -> None:
    with RawClient.connected(bridge.port, "dev-1 é", clean=False) as client:
        client.subscribe(("t/+", 1))
        client.publish("t/own", b"live", 1)
        assert client.take().payload == b"live"
        client.disconnect()
    (subscription,) = bridge.mq_json("display", "SUB('dev%2D1%20%C3%A9:*')", "TOPICSTR", "DESTQMGR")
    assert (subscription["TOPICSTR"], subscription["DESTQMGR"]) == ("t/+", "dev%2D1%20%C3%A9")
    bridge.mq("pub", "t/a", "away", "--persistent")
    bridge.restart()
    with RawClient(bridge.port, "dev-1 é", clean=False) as client:
        assert client.connect().session_present
        assert client.take().payload == b"away"
        bridge.mq("put", "commands", "direct", "--to", "dev%2D1%20%C3%A9")
        direct = client.take()
        assert (direct.topic, direct.payload) == ("commands", b"direct")
        client.unsubscribe("t/+")
    assert b"not found" in bridge.run_mq("display", "SUB('dev%2D1*')").stderr


def test_a_request_has_the_client_as_the_queue_manager_for_replies(bridge: RemoteBridgeProcess) -> None:
    bridge.mq("run", "-", stdin=b"DEFINE QLOCAL(REQUESTS)\nDEFINE SUB(R) TOPICSTR('requests') DEST(REQUESTS)\n")
    with RawClient.connected(bridge.port, "dev-1", level=5) as client:
        client.send(Publish("requests", b"?", 0, False, False, 0, PublishProperties(response_topic="answers")))
        (request,) = bridge.mq_json("get", "REQUESTS", "--wait", "30")
        assert (request["md"]["ReplyToQ"], request["md"]["ReplyToQMgr"]) == ("answers", "dev%2D1")
        bridge.mq("put", request["md"]["ReplyToQ"], "!", "--to", request["md"]["ReplyToQMgr"])
        assert client.take().payload == b"!"


def test_an_identifier_whose_escaped_name_is_too_long_is_rejected(bridge: RemoteBridgeProcess) -> None:
    with RawClient(bridge.port, "-" * 17, level=5) as client:
        assert client.connect().return_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_a_message_for_a_name_without_client_is_a_dead_letter(bridge: RemoteBridgeProcess) -> None:
    bridge.mq("put", "commands", "lost", "--to", "dev%2d1")
    (letter,) = bridge.mq_json("get", "SYSTEM.DEAD.LETTER.QUEUE", "--wait", "30")
    assert letter["dlh"]["DestQMgrName"] == "dev%2d1"
