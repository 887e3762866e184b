"""The thread that holds the subscriptions of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm import subscriber as subscriber_module
from bridge.mq.ibm.coordination import BackendEvents, SubscriptionBarrier
from bridge.mq.ibm.subscriber import Subscribe, Subscriber, Unsubscribe
from bridge.mq.mqi import MQOD, MQPMO, MQSD, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import NONE, TRANSMIT, drain, opened, stop, subscribed
from tests.helpers.patience import PATIENCE
from tests.helpers.units import requests


class Limited:
    """Connections to a queue manager that allows only some of them."""

    def __init__(self, manager: QueueManager, limit: int) -> None:
        self._manager = manager
        self.limit = limit
        self.made = 0

    def __call__(self) -> EmbeddedConnection:
        if self.made >= self.limit:
            raise MQError(cmqc.MQRC_MAX_CONNS_LIMIT_REACHED, "connect")
        self.made += 1
        return EmbeddedConnection(self._manager)


def run(subscriber: Subscriber, connection: EmbeddedConnection, client_id: str, topic_filter: str) -> int:
    """Subscribe on this thread; return the reason."""
    answers: list[list[int]] = []
    subscriber.submit(Subscribe(client_id, requests((topic_filter, 1)), False, "", answers.append))
    subscriber.serve(connection)
    ((reason,),) = answers
    return reason


def test_at_the_connection_limit_only_more_subscriptions_of_clean_sessions_are_rejected(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(subscriber_module, "OTHER_HANDLES", 256 - 2)
    monkeypatch.setattr(subscriber_module, "CONNECTION_RETRY", 0.0)
    connect = Limited(queue_manager, 2)
    connection = connect()
    subscriber = Subscriber(connect, SubscriptionBarrier(), BackendEvents())
    subscriber.opened(connection)
    reasons = [run(subscriber, connection, f"c{number}", "a") for number in range(6)]
    assert reasons == [0] * 4 + [cmqc.MQRC_MAX_CONNS_LIMIT_REACHED] * 2
    assert {"c0:a", "c1:a", "c2:a", "c3:a"} <= queue_manager.objects.topics.subscriptions.keys()
    connect.limit = 3
    assert run(subscriber, connection, "c6", "a") == 0
    assert [record.getMessage()[:9] for record in caplog.records if record.getMessage()[:7] == "MQB4309"] == [
        "MQB4309E "
    ]
    assert "MQB4310I" in caplog.text


def test_a_subscription_of_an_ended_session_that_cannot_be_removed_is_removed_later(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = EmbeddedConnection(queue_manager)
    subscriber = Subscriber(lambda: connection, SubscriptionBarrier(), BackendEvents())
    subscriber.opened(connection)
    answers: list[list[int]] = []
    subscriber.submit(Subscribe("c", requests(("a", 1)), True, "", answers.append))
    subscriber.serve(connection)
    with monkeypatch.context() as patch:

        def subscribe(_sd: MQSD, _handle: int | None = None) -> tuple[int, int]:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "subscribe")

        patch.setattr(connection, "subscribe", subscribe)
        subscriber.submit(Unsubscribe("c", ["a"], answers.append, ended=True))
        subscriber.serve(connection)
    assert answers == [[0], [cmqc.MQRC_NOT_AUTHORIZED]]
    assert "c:a" in subscriber.failure
    assert "c:a" in queue_manager.objects.topics.subscriptions
    subscriber.probe(connection)
    assert "c:a" not in queue_manager.objects.topics.subscriptions


async def test_a_replay_of_retained_publications_delivers_no_new_publication_twice(queue_manager: QueueManager) -> None:
    """The temporary subscription for the replay also gets publications that arrive while it exists."""
    application = EmbeddedConnection(queue_manager)
    topic = application.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="a"), cmqc.MQOO_OUTPUT)
    application.put(topic, Message(MQMD(), b"retained"), MQPMO(Options=cmqc.MQPMO_RETAIN))
    destination = application.open(
        MQOD(ObjectName="SYSTEM.MQTT.PUBLICATION.QUEUE", ObjectQMgrName="c"), cmqc.MQOO_OUTPUT
    )
    sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE, ObjectString="a", SubUserData="1 REPLAY", SubLevel=1)
    replay, _ = application.subscribe(sd, destination)
    application.put(topic, Message(MQMD(), b"new"))
    application.close(replay)
    backend = await opened(queue_manager, NONE)
    handed_over: list[tuple[bytes, str | None]] = []
    arrived = asyncio.Event()

    def consume(batch: Sequence[Any]) -> None:
        handed_over.extend((one.message.data, one.user_data) for one in batch)
        arrived.set()

    backend.start(consume)
    await asyncio.wait_for(arrived.wait(), PATIENCE)
    await subscribed(backend, "other", "b")
    await stop(backend)
    assert handed_over == [(b"retained", "1")]
    assert [message.data[-8:] for message in drain(queue_manager, TRANSMIT)] == [b"retained"]
