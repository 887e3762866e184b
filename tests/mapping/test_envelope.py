"""What a message says beside its body, and the publication that it was made of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.envelope import Envelope, publication_of
from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain


def message(*folders: Folder, **fields: Any) -> Message:
    chain = encode_chain((RFH2(CodedCharSetId=1208, folders=folders),), b"body")
    md = MQMD(**({"Persistence": 0} | fields | {"Format": chain.Format, "CodedCharSetId": 1208}))
    return Message(md, chain.data)


def test_what_a_client_published() -> None:
    stored = to_mq(Publish("a/b", b"x", 1, True, False, 9), ClientIdentity("dev-1", b"op"))
    assert publication_of(Message(stored.md, stored.data_as(retained=True))) == Publication(
        topic="a/b", payload=b"x", qos=1, retain=True, message_id=9, client_id="dev-1", user=b"op"
    )


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, ("t", True)),
        ({"topic": "other"}, ("other", True)),
        ({"retained": False}, ("t", False)),
    ],
)
def test_what_is_known_from_elsewhere_counts(known: dict[str, Any], expected: tuple[str, bool]) -> None:
    found = publication_of(message(Folder.build("mqps", {"Top": "t", "Ret": True})), **known)
    assert (found.topic, found.retain) == expected


@pytest.mark.parametrize(("persistence", "qos"), [(0, 0), (1, 2)])
def test_a_message_of_an_mq_application(persistence: int, qos: int) -> None:
    found = publication_of(Message(MQMD(Persistence=persistence, Expiry=300, UserIdentifier=b"app"), b"x"), topic="t")
    assert found == Publication(topic="t", payload=b"x", qos=qos, user=b"app", expiry=30.0)


@pytest.mark.parametrize(
    ("folders", "name", "expected"),
    [
        ([Folder.build("usr", {"a": "1"}), Folder.build("usr", {"a": "2", "b": "3"})], "usr", {"a": "2", "b": "3"}),
        ([Folder.build("usr", {"a": ["1", "2"]})], "usr", {"a": "2"}),
        ([Folder.build("usr", {"a": "x & y", "ü": "ö"})], "usr", {"a": "x & y", "ü": "ö"}),
        ([Folder.build("jms", {"Dlv": 2})], "jms", {"Dlv": "2"}),
        ([Folder(b"<mqtt><qos dt='i4'>007</qos></mqtt>")], "mqtt", {"qos": "7"}),
        ([Folder(b"<usr><a dt='i4'>x</a></usr>"), Folder(b"<mqps></mqps>")], "mqps", {}),
        ([], "usr", {}),
    ],
)
def test_properties(folders: list[Folder], name: str, expected: dict[str, str]) -> None:
    assert Envelope(message(*folders)).properties(name) == expected


def test_a_folder_that_cannot_be_read_stays_so_beside_one_that_can() -> None:
    broken, whole = Folder(b"<usr><a dt='i4'>x</a></usr>"), Folder.build("usr", {"b": "1"})
    for folders in ((broken, whole), (whole, broken)):
        with pytest.raises(Unmappable, match="folder usr"):
            Envelope(message(*folders)).properties("usr")


VALUE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8) | st.integers(0, 2**40)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), VALUE, max_size=5))
def test_simple_folders_are_read_as_the_parser_reads_them(content: dict[str, Any]) -> None:
    folder = Folder.build("jms", content)
    assert Envelope(message(folder)).properties("jms") == {name: str(value) for name, value in folder.content.items()}
