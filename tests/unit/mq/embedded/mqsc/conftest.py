"""MQSC of the embedded queue manager, also in a process in which the stand-in for IBM MQ has extended it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.mq.embedded.attributes import ATTRIBUTES, BASE_TOPIC, IGNORED
from bridge.mq.embedded.mqsc import display


@pytest.fixture(autouse=True)
def no_stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the attributes of the stand-in."""
    nouns = {noun: display._NOUNS[noun].keywords for noun in (*IGNORED, "QUEUE", "TPSTATUS") if noun != "SUB"}
    removed = {}
    for noun, keywords in nouns.items():
        ignored = IGNORED.get(noun, IGNORED["TOPIC" if noun == "TPSTATUS" else "QLOCAL"])
        for keyword in ignored & ATTRIBUTES.get(noun, {}).keys():
            monkeypatch.delitem(ATTRIBUTES[noun], keyword)
        assert isinstance(keywords, set)
        removed[noun] = ignored & keywords
        keywords -= ignored
    for keyword in IGNORED["TOPIC"] & BASE_TOPIC.keys():
        monkeypatch.delitem(BASE_TOPIC, keyword)
    yield
    for noun, ignored in removed.items():
        display.add_keywords(noun, ignored)
