"""The records of durable sessions: compatibility between older and newer bridges."""

from __future__ import annotations

import msgspec
import pytest

from bridge.telemetry.identity import Principal
from bridge.telemetry.record import SentRecord, UnknownRecord, decode, encode

#: Written by bridges that did not record owners.
WITHOUT_OWNER = (
    b'{"side":"sent","clientIdentifier":"c","connected":true,"channel":"PLAIN.MQTT","sequence":3,"version":2}'
)


def test_the_owner_of_a_session_survives_encoding() -> None:
    record = SentRecord("c", principal=Principal(True, "älice"), mqUser="alice")
    assert decode(encode(record)) == record


def test_a_record_of_an_older_bridge_has_no_owner() -> None:
    record = decode(WITHOUT_OWNER)
    assert isinstance(record, SentRecord)
    assert record.principal is None and record.mqUser == "" and record.channel == "PLAIN.MQTT"


def test_an_older_bridge_reads_a_record_with_an_owner() -> None:
    """Older bridges accept records of this version and ignore fields that they do not know."""

    class Older(msgspec.Struct, tag_field="side", tag="sent"):
        clientIdentifier: str
        version: int

    record = encode(SentRecord("c", principal=Principal(False)))
    assert msgspec.json.decode(record, type=Older) == Older("c", 2)


@pytest.mark.parametrize(
    "data", [b"", b"rubbish", WITHOUT_OWNER[:-1], WITHOUT_OWNER.replace(b'"c"', b'"\xb1"'), b"\xa1\xb1"]
)
def test_other_data_is_not_a_record(data: bytes) -> None:
    with pytest.raises(UnknownRecord, match="not a session record"):
        decode(data)
