"""What the bridge of a configuration needs of its queue manager."""

from __future__ import annotations

import pytest

from bridge.config import (
    BatchConfig,
    ChannelConfig,
    Configuration,
    EmbeddedQueueManagerConfig,
    IbmQueueManagerConfig,
)
from bridge.mq.ibm.requirements import Requirements, requirements_of


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
    asking = embedded.model_copy(update={"queue_manager": EmbeddedQueueManagerConfig(authorities="enforced")})
    assert requirements_of(asking).identities == ("nobody", "sensor")
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


@pytest.mark.parametrize(
    ("mapping", "needed"),
    [
        ({}, False),
        ({"guarantee": "at-most-once"}, False),
        ({"guarantee": "exactly-once"}, True),
        ({"guarantee": "exactly-once", "enabled": False}, False),
    ],
)
def test_the_state_queue_of_mappings_is_needed_for_exactly_once(mapping: dict[str, object], needed: bool) -> None:
    described = {"from": {"queue": "Q"}, "to": {"mqtt": "t"}, **mapping}
    requirements = requirements_of(Configuration.model_validate({"mappings": {"m": described}}))
    assert requirements.mapping_state is needed
    names = [one.name for one in requirements.queues("")]
    assert ("SYSTEM.MQTT.MAPPING.STATE" in names) is needed
