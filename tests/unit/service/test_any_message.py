"""Any message that an application may put for a client: it comes, or is dead-lettered, and costs no other one anything.

Compiled code checks the types that it is handed: what it does not take has to be that message's refusal alone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import Pingreq, Pingresp, Publish
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD, RFH2, Folder, encode_rfh2
from tests.helpers.fake_backend import Queued
from tests.helpers.service_bridge import Bridge

LONGS = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
VALUES = TEXT | st.integers(-5, 1 << 62) | st.sampled_from(["0", "1", "2", "3", "#", "+/a", "a/b", "TRUE"])
FOLDERS = st.builds(
    Folder.build,
    st.sampled_from(["mqps", "mqtt", "usr", "mcd", "x"]),
    st.dictionaries(st.sampled_from(["Top", "Ret", "Sud", "qos", "msgid", "clientId", "Msd", "a"]), VALUES, max_size=4),
) | st.builds(Folder, st.binary(max_size=20))


@st.composite
def _data(draw: st.DrawFn) -> bytes:
    """An RFH2 and a body, perhaps with some bytes that are others, more or fewer."""
    rfh2 = RFH2(Encoding=draw(st.sampled_from([546, 273])), folders=tuple(draw(st.lists(FOLDERS, max_size=3))))
    data = encode_rfh2(rfh2) + draw(st.binary(max_size=12))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + draw(st.binary(max_size=3)) + data[place + draw(st.integers(0, 3)) :]
    return data


MESSAGES = st.builds(
    Message,
    st.builds(
        MQMD,
        Format=st.sampled_from([b"MQHRF2", b"MQSTR", b"MQXMIT", b"MQDEAD", b"", b"\xff" * 8]),
        Encoding=LONGS | st.just(546),
        CodedCharSetId=LONGS | st.just(1208),
        Persistence=LONGS,
        Expiry=LONGS,
        Priority=LONGS,
        Report=LONGS,
    ),
    _data() | st.binary(max_size=60),
)
QUEUED = st.builds(
    Queued,
    client_id=st.just("c"),
    msg_number=st.integers(1, (1 << 63) - 1),
    message=MESSAGES,
    topic=st.none() | TEXT | st.sampled_from(["a/b", "a/#", "\ud800", "a/\0"]),
    user_data=st.none() | TEXT | st.sampled_from(["0", "1", "2"]),
    retained=st.booleans(),
    remote_queue=TEXT,
)


async def _deliver(hostile: list[Queued]) -> None:
    async with Bridge({"in_flight": 100}) as running:
        client = await running.connect()
        last = running.backend.publication(7, 0, payload=b"the last")
        running.backend.deliver(*hostile, last)
        client.send(Pingreq())
        came: list[Any] = []
        while not came or came[-1] != Pingresp():
            came.append(await client.receive())
        publications = [one for one in came if isinstance(one, Publish)]
        dead = [one for one, _ in running.backend.dead]
        assert publications[-1].payload == b"the last"
        assert len(publications) - 1 + len(dead) == len(hostile)
        assert all(any(one is message for message in hostile) for one in dead)


@given(hostile=st.lists(QUEUED, min_size=1, max_size=4, unique_by=lambda one: one.msg_number))
def test_any_message_comes_or_is_dead_lettered(hostile: list[Queued]) -> None:
    asyncio.run(_deliver(hostile))
