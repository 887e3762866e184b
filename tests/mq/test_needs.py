"""What the bridge of a configuration needs of its queue manager."""

from __future__ import annotations

import pytest

from bridge.config import BatchConfig, ChannelConfig, Configuration, IbmQueueManagerConfig
from bridge.mq.needs import Requirements, requirements_of


def test_what_a_configuration_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    channels = [
        ChannelConfig(name="A", port=1),
        ChannelConfig(name="B", port=2, mcauser="sensor"),
        ChannelConfig(name="C", port=3, use_client_id=True),
    ]
    embedded = Configuration(channels=channels, transmission_queue="XMIT")
    assert requirements_of(embedded) == Requirements(
        transmission_queue="XMIT", user="somebody", identities=("", "sensor")
    )
    queue_manager = IbmQueueManagerConfig(
        name="QM1", mode="bindings", user="ours", dead_letter_queue="DLQ", batch=BatchConfig(messages=5000)
    )
    assert requirements_of(embedded.model_copy(update={"queue_manager": queue_manager})) == Requirements(
        transmission_queue="XMIT",
        user="ours",
        identities=("", "sensor"),
        dead_letter_queue="DLQ",
        uncommitted=15_000,
    )
