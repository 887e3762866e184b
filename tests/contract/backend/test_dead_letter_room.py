"""Bytes that count towards the limits of dead letters, by owner, on all queue managers."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.models import LimitsConfig
from bridge.mq.dead_letter import DeadLetters, OriginContext, dead_letter
from bridge.mq.dead_letter_room import (
    OVERHEAD,
    DeadLetterRoom,
    application_of_pipeline,
    owner_of_mapping,
    owner_of_pipeline,
)
from bridge.mq.mqi import MQOD, GetOptions
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import rfh2_of
from bridge.telemetry.identity import AS_IS
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: The data of each message, and the bytes that it counts.
BODY = b"x" * 100
SIZE = len(BODY) + OVERHEAD
NAME = "a mapping whose name is cut in the header"


@pytest.fixture
def letters(mq: Any) -> str:
    queue: str = mq.queue()
    return queue


def put_message(connection: Any, queue: str, message: Message) -> None:
    connection.put1(MQOD(ObjectName=queue), message, cmqc.MQPMO_NO_SYNCPOINT)


def scanned(room: DeadLetterRoom, connection: Any, queue: str, application: str) -> None:
    room.scan(connection, queue, application, [NAME], AS_IS)


def test_only_messages_of_this_bridge_count(mq: Any, letters: str) -> None:
    connection = mq.connect()
    md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
    # A message that a mapping could not process, with and without an RFH2.
    for body, format_ in ((BODY, b""), (rfh2_of("client", 1, 1, None) + BODY, cmqc.MQFMT_RF_HEADER_2)):
        DeadLetters(connection, letters, NAME).put(MQMD(Persistence=1, Format=format_), body, 2053, "why")
        connection.commit()
    # Messages of other programs: with an MQDLH that names no owner of this bridge, and without one.
    put_message(
        connection, letters, dead_letter(md, BODY, 2053, "Q", "elsewhere", OriginContext.now("another program"))
    )
    put_message(connection, letters, Message(md, BODY))
    # A message of a pipeline.
    DeadLetters(connection, letters, application_of_pipeline(NAME)).put(MQMD(Persistence=1), BODY, 2110, "why")
    connection.commit()
    room = DeadLetterRoom(LimitsConfig())
    scanned(room, connection, letters, "no such application")
    assert room.used_by(owner_of_mapping(NAME)) == 2 * SIZE
    assert room.used_by(owner_of_pipeline(NAME)) == SIZE
    assert (room.total, room.stale) == (3 * SIZE, False)


def test_a_long_rfh2_counts_towards_the_limit(mq: Any, letters: str) -> None:
    connection = mq.connect()
    headers = rfh2_of("client", 1, 1, PublishProperties(user_property=(("name", "x" * 5_000),)))
    DeadLetters(connection, letters, NAME).put(
        MQMD(Persistence=1, Format=cmqc.MQFMT_RF_HEADER_2), headers + BODY, 2053, "why"
    )
    connection.commit()
    room = DeadLetterRoom(LimitsConfig())
    scanned(room, connection, letters, "no such application")
    assert room.total == SIZE + len(headers) - 512 > 5_000


def test_messages_for_clients_count_for_the_client(mq: Any, letters: str) -> None:
    """The application name in the MQMD is that of the bridge."""
    connection = mq.connect()
    md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
    for client in ("pump-1", "pump-1", "pump-2"):
        letter = dead_letter(md, BODY, 2056, "SYSTEM.MQTT.PUBLICATION.QUEUE", client, OriginContext.now("publisher"))
        put_message(connection, letters, letter)
    handle = connection.open(MQOD(ObjectName=letters), cmqc.MQOO_BROWSE)
    application = connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST)).md.PutApplName.rstrip(b" \0")
    connection.close(handle)
    room = DeadLetterRoom(LimitsConfig())
    scanned(room, connection, letters, application.decode())
    assert room.used_by(("client", "pump-1")) == 2 * SIZE
    assert room.used_by(("client", "pump-2")) == SIZE
