"""The models by themselves: their defaults, and what they refuse when a program rather than a file makes them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from bridge.config.channel import ChannelConfig
from bridge.config.description import describe
from bridge.config.models import Configuration, default_configuration
from bridge.config.queue_manager import EmbeddedQueueManagerConfig


def test_a_program_names_paths_from_the_working_directory() -> None:
    made = EmbeddedQueueManagerConfig(data_directory=Path("store"), scripts=[Path("a.mqsc")])
    assert (made.data_directory, made.scripts) == (Path("store"), [Path("a.mqsc")])


def test_nothing_can_be_changed() -> None:
    configuration = default_configuration()
    with pytest.raises(ValidationError):
        configuration.transmission_queue = "OTHER"
    with pytest.raises(ValidationError):
        configuration.channels[0].port = 1


def test_each_default_is_its_own() -> None:
    default_configuration().queue_manager.scripts.append(Path("a"))
    default_configuration().channels[0].protocols.clear()
    assert default_configuration() == Configuration()
    assert default_configuration().channels[0].protocols == ["MQTTV5", "MQTTV311", "MQTTV3"]
    assert default_configuration().queue_manager.scripts == []


def test_two_channels_may_each_take_any_free_port() -> None:
    Configuration(channels=[ChannelConfig(name="A", port=0), ChannelConfig(name="B", port=0)])


def test_two_channels_may_share_a_port_of_different_addresses() -> None:
    Configuration(channels=[ChannelConfig(name="A"), ChannelConfig(name="B", address="127.0.0.2")])


ANONYMOUS = {"allow_anonymous_remote": True}
#: what a channel specifies -> seconds until the sessions of its clients expire
SESSION_EXPIRY: list[tuple[dict[str, object], float | None]] = [
    ({}, None),
    ({"address": "127.0.0.2"}, None),
    ({"address": "::1"}, None),
    ({"address": "localhost"}, None),
    ({"socket": "/run/mqtt.sock"}, None),
    ({"socket": "/run/mqtt.sock", "address": "0.0.0.0", **ANONYMOUS}, None),
    ({"address": "0.0.0.0", **ANONYMOUS}, 2_592_000),
    ({"address": "::", **ANONYMOUS}, 2_592_000),
    ({"address": "mq.example.com", "authentication": [{"method": "password", "file": "f"}]}, 2_592_000),
    ({"address": "0.0.0.0", "session_expiry": None, **ANONYMOUS}, None),
    ({"address": "0.0.0.0", "session_expiry": "1 h", **ANONYMOUS}, 3600),
    ({"session_expiry": "1 h"}, 3600),
]


def test_sessions_of_channels_that_other_machines_reach_expire_by_default(subtests: pytest.Subtests) -> None:
    for channel, expiry in SESSION_EXPIRY:
        with subtests.test(channel=channel, expiry=expiry):
            config = ChannelConfig.model_validate(channel)
            assert config.session_expiry == expiry
            (line,) = [one for one in describe(Configuration(channels=[config])) if one.startswith("channel ")]
            assert ("sessions expire after" in line) is (expiry is not None)
            if expiry is not None:
                assert f"sessions expire after {round(expiry / 3600)} h" in line
