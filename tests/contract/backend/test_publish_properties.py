"""MQTT 5 properties in all backends: from client to client, and from a client to MQ applications that answer."""

from __future__ import annotations

import pytest

from bridge.mapping.message_view import MessageView
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer, remove_subscription
from bridge.mq.mqi import Connection, Got
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.telemetry.conversion import from_mq, publication_of, publisher_of, to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import RFH2, Folder, decode_rfh2, encode_chain
from tests.helpers.backend_user import Bridge, unit
from tests.helpers.patience import PATIENCE

ALL = PublishProperties(
    payload_format_indicator=1,
    content_type="text/plain",
    response_topic="answers/of the device",
    correlation_data=b"c-1\0",
    user_property=(("site-id", "HH"), ("a", "<&>"), ("a", " 2 ")),
)


def published(topic: str, properties: PublishProperties, client_id: str = "dev.1", qos: int = 1) -> PublicationMessage:
    return to_mq(Publish(topic, b"21.5", qos, False, False, 7, properties), ClientIdentity(client_id, b""))


@pytest.mark.parametrize(
    "properties",
    [
        ALL,
        PublishProperties(payload_format_indicator=0, correlation_data=b""),
        PublishProperties(correlation_data=b"c-1"),
        PublishProperties(correlation_data=bytes(range(100))),
        PublishProperties(content_type="", response_topic="answers"),
    ],
    ids=["all", "zero and empty", "Correlation Data of a CorrelId", "long Correlation Data", "Content Type"],
)
async def test_a_client_gets_publications_of_another_client(bridge: Bridge, properties: PublishProperties) -> None:
    await bridge.subscribed("c1", bridge.topic("a"))
    await bridge.run_accepted(unit(published(bridge.topic("a"), properties)))
    (transmission,) = await bridge.settled()
    assert from_mq(transmission.message, with_properties=True).properties == properties
    assert publisher_of(transmission.message) == "dev.1"
    await bridge.restart()
    (transmission,) = await bridge.settled()
    assert from_mq(transmission.message, with_properties=True).properties == properties


@pytest.mark.smoke
async def test_a_publication_without_properties_arrives_without_properties(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("a"))
    await bridge.run_accepted(
        unit(to_mq(Publish(bridge.topic("a"), b"x", 1, False, False, 7), ClientIdentity("dev", b"")))
    )
    (transmission,) = await bridge.settled()
    assert from_mq(transmission.message, with_properties=True).properties == PublishProperties()


@pytest.mark.smoke
async def test_a_client_gets_properties_of_an_application(bridge: Bridge) -> None:
    """The client gets the properties of a message with its own headers, and the body without the headers."""
    usr = Folder.build("usr", {"site_x002D_id": "HH", "n": 5})
    chain = encode_chain((RFH2(folders=(usr,), Format=b"MQSTR", CodedCharSetId=1208),), b"body")
    await bridge.place.put(
        "alarms",
        chain.data,
        manager="c1",
        Persistence=1,
        Format=chain.Format,
        CodedCharSetId=chain.CodedCharSetId,
        CorrelId=b"c-1".ljust(24, b"\0"),
    )
    (transmission,) = await bridge.settled()
    publication = from_mq(
        transmission.message, topic=transmission.topic or transmission.remote_queue, with_properties=True
    )
    assert (publication.topic, publication.payload) == ("alarms", b"body")
    assert publication.properties == PublishProperties(
        payload_format_indicator=1, correlation_data=b"c-1", user_property=(("site-id", "HH"), ("n", "5"))
    )


async def test_an_application_answers_with_an_ordinary_put(bridge: Bridge) -> None:
    """The put to ReplyToQ at ReplyToQMgr reaches the device via the default transmission queue, with its Response Topic."""
    topic, queue = bridge.topic("ask"), bridge.topic("ask").replace("/", ".").upper()
    await bridge.place.command(
        f"DEFINE QLOCAL('{queue}')", f"DEFINE SUB('{queue}') TOPICSTR('{topic}') DEST('{queue}')"
    )
    bridge.place.at_end += [f"DELETE SUB('{queue}')", f"DELETE QLOCAL('{queue}')"]
    request_properties = PublishProperties(
        message_expiry_interval=600,
        response_topic="answers/dev.1",
        correlation_data=b"c-1",
        user_property=(("unit", "C"),),
    )
    await bridge.run_accepted(unit(published(topic, request_properties)))
    request = await bridge.place.take(queue)
    assert request.md.MsgType == cmqc.MQMT_REQUEST
    assert 0 < request.md.Expiry <= 6000
    usr = decode_rfh2(request.data).folder("usr")
    assert usr is not None and usr.content == {"unit": "C"}
    await bridge.place.put(
        request.md.ReplyToQ.decode(),
        b"4711",
        manager=request.md.ReplyToQMgr.decode(),
        MsgType=cmqc.MQMT_REPLY,
        CorrelId=request.md.CorrelId,
        Persistence=1,
        Format=b"MQSTR",
    )
    (answer,) = await bridge.settled()
    assert answer.client_id == "dev.1"
    publication = from_mq(answer.message, topic=answer.topic or answer.remote_queue, with_properties=True)
    assert (publication.topic, publication.payload, publication.qos) == ("answers/dev.1", b"4711", 2)
    assert publication.properties == PublishProperties(payload_format_indicator=1, correlation_data=b"c-1")


async def test_a_mapping_receives_properties_from_a_topic(bridge: Bridge) -> None:
    topic = bridge.topic("a")
    source = ConsumerSource(mapping=topic, topic_filter=topic)
    await bridge.place.application(lambda connection: MessageConsumer(connection, source).close())
    try:
        await bridge.run_accepted(unit(published(topic, ALL)))

        def take(connection: Connection) -> Got:
            (message,) = MessageConsumer(connection, source).take(1, 1 << 30, 60.0, PATIENCE)
            connection.commit()
            return message

        message = await bridge.place.application(take)
    finally:
        await bridge.place.application(lambda connection: remove_subscription(connection, topic))
    publication = publication_of(Message(message.md, message.data))
    assert (publication.topic, publication.payload, publication.client_id) == (topic, b"21.5", "dev.1")
    assert publication.properties == ALL
    folders = MessageView(message.md, message.data).json()["rfh2"][0]["folders"]
    assert folders["usr"] == {"site_x002D_id": "HH", "a": " 2 "}
    assert folders["mqtt"]["userProperties"] == '[["site-id","HH"],["a","<&>"],["a"," 2 "]]'
