"""`mqbridge topic` and `mqbridge user`: publishers, routes of publications, and what users may publish."""

from __future__ import annotations

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

CONFIG = "control_socket: {}/control\n"


@pytest.fixture
def bridge(administered_bridge: BridgeProcess) -> BridgeProcess:
    return administered_bridge


@pytest.fixture
def administrator(bridge: BridgeProcess) -> Administrator:
    return Administrator(bridge)


def test_publishers_of_a_topic(bridge: BridgeProcess, administrator: Administrator) -> None:
    with RawClient.connected(bridge.port, "publisher") as publisher:
        publisher.publish("who/publishes", b"x", 1)
        (details,) = administrator.json("topic", "publishers", "who/#", "--for", "0s")
        assert (details["client_id"], details["topic"]) == ("publisher", "who/publishes")

        def is_counted() -> bool:
            publisher.publish("who/publishes", b"x", 1)
            (details,) = administrator.json("topic", "publishers", "who/#", "--for", "0s")
            return bool(details["count"])

        until(is_counted)
        assert "publisher" in administrator.does("topic", "publishers", "who/publishes", "--for", "0s")
    assert administrator.does("topic", "publishers", "nobody/#", "--for", "0s") == "no client has published there\n"


def test_a_publication_is_made_retained_and_cleared(bridge: BridgeProcess, administrator: Administrator) -> None:
    with RawClient.connected(bridge.port, "listener") as client:
        client.subscribe(("made/here", 1))
        summary = administrator.does("topic", "publish", "made/here", "hello", "--retain", "--persistent")
        assert summary == "published 5 bytes to made/here, retained\n"
        assert client.take().payload == b"hello"
        (details,) = administrator.json("topic", "show", "made/here")
        assert [publication["topic"] for publication in details["retained"]] == ["made/here"]
        cleared = administrator.does("topic", "clear", "made/here", "--yes")
        assert cleared == "deleted the retained publication of made/here\n"
        (details,) = administrator.json("topic", "show", "made/here")
        assert details["retained"] == []
        client.ping()
        assert not client.inbox


def test_the_route_of_a_publication(bridge: BridgeProcess, administrator: Administrator) -> None:
    with RawClient.connected(bridge.port, "subscriber") as client:
        client.subscribe(("route/+", 0))
        (route,) = administrator.json("topic", "route", "route/1", "--client", "subscriber")
        assert [
            (subscription["subscriber"], subscription["qos"], subscription["state"])
            for subscription in route["subscriptions"]
        ] == [("subscriber", 0, "connected")]
        assert route["accepted"]
        text = administrator.does("topic", "route", "route/1", "--client", "subscriber")
        assert "subscriber  route/+" in text
        assert "authority: permits: " in text
        client.ping()
        assert not client.inbox, "nothing was published"
    assert "is not valid" in administrator.refused("topic", "route", "route/#", status=2)


def test_topics_to_which_a_user_may_publish(administrator: Administrator) -> None:
    text = administrator.does("user", "may-publish", "anyone", "PLAIN.MQTT", "plant/1")
    assert text.endswith("user 'anyone' may publish to 'plant/1' via channel PLAIN.MQTT\n")
    (decision,) = administrator.json("user", "may-publish", "anyone", "PLAIN.MQTT", "plant/1")
    assert decision["permitted"] and decision["mq_user"] == "anyone"
    # A default record of IBM MQ blocks privileged users.
    rejected = administrator.run("user", "may-publish", "mqm", "PLAIN.MQTT", "plant/1")
    assert rejected.exit_code == 1
    assert "channel authentication: REJECTS: " in rejected.stdout
    assert "no channel" in administrator.refused("user", "may-publish", "x", "NO.SUCH", "t", status=3)
