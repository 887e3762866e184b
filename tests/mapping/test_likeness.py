"""Rules remember what they have made of publications: nobody may be able to tell by the messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.mapping import ToMqMapping
from bridge.mapping.publication import Publication, Unmappable
from bridge.mapping.to_mq_rule import ToMqRule

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "standard to a queue": {"to": {"queue": "Q"}},
    "standard to a topic": {"to": {"topic": "b/{rest}"}},
    "captures": {"to": {"queue": "{rest|mqname}"}},
    "message id in a template": {"to": {"queue": "Q"}, "attributes": {"properties": {"n": "{messageId|default:'-'}"}}},
    "message id of the mqtt folder": {"to": {"queue": "Q"}, "attributes": {"msg_id": "{messageId|default:'0'}"}},
    "text of the payload": {"to": {"queue": "Q"}, "attributes": {"correl_id": "{text|default:'-'}"}},
    "by size": {"to": {"queue": "Q"}, "filter": {"min_size": 2}},
    "by JSON": {"to": {"queue": "Q"}, "filter": {"json": "$ == 1"}},
    "by QoS": {"to": {"queue": "Q"}, "filter": {"qos": [1, 2]}},
    "by a property": {"to": {"queue": "Q"}, "filter": {"properties": {"usr.a": "1"}}},
    "by the client": {"to": {"queue": "Q"}, "filter": {"properties": {"clientId": "c<msgid>"}}},
    "retained always": {"to": {"topic": "r"}, "attributes": {"retained": "always"}},
    "text": {"to": {"queue": "Q"}, "payload": {"type": "text", "ccsid": 500}},
    "without RFH2": {"to": {"queue": "Q"}, "attributes": {"rfh2": False}},
    "unfillable": {"to": {"queue": "{usr.a}"}},
}
RULES = {
    name: ToMqRule(name, ToMqMapping.model_validate({"from": {"mqtt": "a/{rest...}"}, **written}), "QM1")
    for name, written in CONFIGURATIONS.items()
}
#: Few of each, so that kinds come again.
PUBLICATIONS = st.builds(
    Publication,
    topic=st.sampled_from(["a/b", "a/<msgid>7", "b/c"]),
    payload=st.sampled_from([b"", b"1", b"two", b"<msgid"]),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    message_id=st.sampled_from([0, 1, 9, 10, 12345, 65535]),
    client_id=st.sampled_from(["", "c<msgid>", "d"]),
    user=st.sampled_from([b"", b"u"]),
    expiry=st.sampled_from([None, 1.5]),
    correlation_data=st.sampled_from([b"", b"c"]),
    response_topic=st.sampled_from(["", "r"]),
    content_type=st.sampled_from(["", "text/plain"]),
    properties=st.sampled_from([{}, {"a": "1"}]),
    hops=st.sampled_from([(), ("QM1/x",)]),
)


def outcome(map: Any, publication: Publication) -> Any:
    try:
        return map(publication)
    except Unmappable as error:
        return error.reason, str(error)


@pytest.mark.parametrize("name", RULES)
@given(publications=st.lists(PUBLICATIONS, min_size=1, max_size=12))
def test_what_is_remembered_is_what_would_be_made(name: str, publications: list[Publication]) -> None:
    rule = RULES[name]
    for publication in publications:
        assert outcome(rule.map, publication) == outcome(rule._map, publication)


def test_the_common_case_is_remembered() -> None:
    """Else nothing here would be tested."""
    rule = RULES["captures"]
    kinds = [
        rule._likeness.kind(Publication(topic="a/b", payload=payload, qos=1, message_id=mid, client_id="d"))
        for payload, mid in ((b"1", 10), (b"2", 99))
    ]
    assert kinds[0] is not None and kinds[0] == kinds[1]
