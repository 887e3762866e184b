"""The thread that holds the subscriptions of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm import subscriber as subscriber_module
from bridge.mq.ibm.coordination import BackendEvents, SubscriptionBarrier
from bridge.mq.ibm.subscriber import SubscribeJob, Subscriber, UnsubscribeJob
from bridge.mq.mqi import MQOD, MQSD, MQError
from bridge.mq.worker import LOST
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import NONE, TRANSMIT, drain, opened, stop, subscribed
from tests.helpers.patience import PATIENCE
from tests.helpers.units import requests
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MQPMO


class Limited:
    """Connections to a queue manager that allows only some of them."""

    def __init__(self, manager: QueueManager, limit: int) -> None:
        self._manager = manager
        self.limit = limit
        self.connections = 0

    def __call__(self) -> StandInConnection:
        if self.connections >= self.limit:
            raise MQError(cmqc.MQRC_MAX_CONNS_LIMIT_REACHED, "connect")
        self.connections += 1
        return StandInConnection(self._manager)


def run(subscriber: Subscriber, connection: StandInConnection, client_id: str, topic_filter: str) -> int:
    """Subscribe on this thread. Return the reason code."""
    answers: list[list[int]] = []
    subscriber.submit(SubscribeJob(client_id, requests((topic_filter, 1)), False, "", answers.append))
    subscriber.serve(connection)
    ((reason,),) = answers
    return reason


def test_at_the_connection_limit_only_additional_subscriptions_of_clean_sessions_are_rejected(
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


@pytest.mark.parametrize(
    "reason",
    [
        # IBM MQ's topic "API completion and reason codes": the results of MQCONNX above the maximum number of connections,
        # or with a full backlog of the listener
        pytest.param(cmqc.MQRC_MAX_CONNS_LIMIT_REACHED, id="2025"),
        pytest.param(cmqc.MQRC_Q_MGR_NOT_AVAILABLE, id="2059"),
        pytest.param(cmqc.MQRC_CONNECTION_BROKEN, id="2009"),
        pytest.param(cmqc.MQRC_NOT_AUTHORIZED, id="2035"),
        pytest.param(cmqc.MQRC_SECURITY_ERROR, id="2063"),
        pytest.param(cmqc.MQRC_UNEXPECTED_ERROR, id="2195"),
        pytest.param(cmqc.MQRC_CHANNEL_NOT_AVAILABLE, id="2537"),
        pytest.param(cmqc.MQRC_HOST_NOT_AVAILABLE, id="2538"),
        pytest.param(cmqc.MQRC_CHANNEL_CONFIG_ERROR, id="2539"),
    ],
)
def test_a_rejected_extra_connection_is_not_a_loss_while_the_first_one_answers(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    monkeypatch.setattr(subscriber_module, "OTHER_HANDLES", 256 - 1)
    monkeypatch.setattr(subscriber_module, "CONNECTION_RETRY", 0.0)
    connection = StandInConnection(queue_manager)

    def refuse() -> StandInConnection:
        raise MQError(reason, "connect")

    subscriber = Subscriber(refuse, SubscriptionBarrier(), BackendEvents())
    subscriber.opened(connection)
    assert [run(subscriber, connection, f"c{number}", "a") for number in range(3)] == [0, reason, reason]
    # After a reconnection, the second connection is rejected for a while. Its subscription is kept.
    connections = iter([StandInConnection(queue_manager)])
    monkeypatch.setattr(subscriber, "_open_connection", lambda: next(connections))
    assert run(subscriber, connection, "c1", "a") == 0
    monkeypatch.setattr(subscriber, "_open_connection", refuse)
    again = StandInConnection(queue_manager)
    subscriber.opened(again)
    assert len(subscriber._to_make) == 1
    again.disconnect()
    with pytest.raises(MQError) as lost:
        run(subscriber, again, "c4", "a")
    assert lost.value.reason in LOST


def test_a_subscription_of_an_ended_session_that_cannot_be_removed_is_removed_later(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = StandInConnection(queue_manager)
    subscriber = Subscriber(lambda: connection, SubscriptionBarrier(), BackendEvents())
    subscriber.opened(connection)
    answers: list[list[int]] = []
    subscriber.submit(SubscribeJob("c", requests(("a", 1)), True, "", answers.append))
    subscriber.serve(connection)
    with monkeypatch.context() as patch:

        def subscribe(_sd: MQSD, _handle: int | None = None) -> tuple[int, int]:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "subscribe")

        patch.setattr(connection, "subscribe", subscribe)
        subscriber.submit(UnsubscribeJob("c", ["a"], answers.append, ended=True))
        subscriber.serve(connection)
    assert answers == [[0], [cmqc.MQRC_NOT_AUTHORIZED]]
    assert "c:a" in subscriber.failure
    assert "c:a" in queue_manager.objects.topics.subscriptions
    subscriber.probe(connection)
    assert "c:a" not in queue_manager.objects.topics.subscriptions


async def test_a_replay_of_retained_publications_delivers_no_new_publication_twice(queue_manager: QueueManager) -> None:
    """The temporary subscription for the replay also gets publications that arrive while it exists."""
    application = StandInConnection(queue_manager)
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
        handed_over.extend((message.message.data, message.user_data) for message in batch)
        arrived.set()

    backend.start(consume)
    await asyncio.wait_for(arrived.wait(), PATIENCE)
    await subscribed(backend, "other", "b")
    await stop(backend)
    assert handed_over == [(b"retained", "1")]
    assert [message.data[-8:] for message in drain(queue_manager, TRANSMIT)] == [b"retained"]
