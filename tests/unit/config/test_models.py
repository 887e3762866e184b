"""The models by themselves: their defaults, and what they refuse when a program rather than a file makes them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from bridge.config.channel import ChannelConfig
from bridge.config.description import describe
from bridge.config.models import Configuration, default_configuration
from bridge.config.queue_manager import EmbeddedQueueManagerConfig, ListenerConfig


def test_defaults() -> None:
    assert default_configuration().model_dump() == {
        "queue_manager": {
            "name": "MQB1",
            "type": "embedded",
            "data_directory": Path("data"),
            "listener": None,
            "scripts": [],
            "authorities": "ignored",
            "max_message_length": 4_194_304,
            "overlapping_subscriptions": "each",
        },
        "channels": [
            {
                "name": "PLAIN.MQTT",
                "address": "127.0.0.1",
                "port": 1883,
                "protocols": ["MQTTV5", "MQTTV311", "MQTTV3"],
                "mcauser": None,
                "use_client_id": False,
                "allow_anonymous_remote": False,
                "byte_order": "big",
                "max_clients": 10_000,
                "backlog": 4096,
                "connect_timeout": 10.0,
                "authentication": [],
                "authentication_methods": [],
                "socket": None,
                "tls": None,
                "websocket": None,
                "proxies": [],
                "publish_topics": None,
                "subscribe_topics": None,
                "shared_client_ids": False,
                "max_clients_per_address": None,
                "connect_rate": None,
                "failed_connects": 10,
                "publish_rate": None,
                "publish_bytes": None,
                "max_connect_size": 262_144,
                "refused_to_dead_letters": [],
                "keep_alive": 0,
                "session_expiry": None,
                "max_packet_size": 4_194_304,
            }
        ],
        "channel_authentication": [],
        "transmission_queue": "SYSTEM.MQTT.TRANSMIT.QUEUE",
        "links": {},
        "mappings": {},
        "pipelines": {},
        "spark": {
            "master": None,
            "conf": {},
            "packages": [],
            "jars": [],
            "listener": None,
            "user": None,
            "password_file": None,
            "tls": None,
            "shared": [],
        },
        "control_socket": None,
        "limits": {
            "in_flight": 20,
            "pending_bytes": 1_048_576,
            "pending_publication_bytes": 1_048_576,
            "unreleased": 1000,
            "subscribe_filters": 1000,
            "subscriptions": 5000,
            "request_bytes": 262_144,
            "subscriptions_per_user": 100_000,
            "subscriptions_total": 1_000_000,
            "sessions": 100_000,
            "sessions_per_user": 10_000,
            "sessions_per_network": 20_000,
            "waiting_bytes": 67_108_864,
            "waiting_full": "dead-letter",
            "waiting_total": 268_435_456,
            "retained_bytes": 67_108_864,
            "retained_total": 536_870_912,
            "memory_watermark": "70%",
            "retry_interval": 20.0,
            "shutdown_timeout": 10.0,
            "will_grace": 0.0,
        },
        "password_cache": {"enabled": True, "file": None},
        "archive": {
            "directory": None,
            "payloads": True,
            "roll": {"rows": 1_000_000, "size": 134_217_728, "time": 10.0},
            "memory": 67_108_864,
            "retention_days": None,
        },
        "admin": {
            "tls": None,
            "allow_plain_remote": False,
            "address": "127.0.0.1",
            "port": None,
            "token_file": None,
            "authentication": [],
            "administrators": [],
            "open_metrics": True,
            "payloads": True,
        },
        "traces": {
            "endpoint": None,
            "headers_file": None,
            "ca_file": None,
            "sample": 0.01,
            "service_name": "mqbridge",
            "names": True,
            "timeout": 10.0,
            "waiting": 2048,
        },
        "audit_log": {"file": None, "size": 10_485_760, "files": 10},
        "log": {"level": "info", "format": "text", "trace_clients": []},
    }
    assert ListenerConfig().model_dump() == {
        "address": "127.0.0.1", "port": 1414, "password_file": None, "allow_anonymous_remote": False,
        "authentication": [], "tls": None, "max_connections": 1000, "max_connections_per_address": None,
        "failed_connects": 10,
    }  # fmt: skip


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


def test_channels_that_clash() -> None:
    with pytest.raises(ValidationError, match="expected a name that no other channel has, found 'A' again"):
        Configuration(channels=[ChannelConfig(name="A", port=1), ChannelConfig(name="A", port=2)])
    with pytest.raises(ValidationError, match=r"found 127\.0\.0\.1:5 again, where channels\[0\] listens"):
        Configuration(channels=[ChannelConfig(name="A", port=5), ChannelConfig(name="B", address="localhost", port=5)])


def test_a_remote_address_must_be_allowed() -> None:
    with pytest.raises(ValidationError, match="or 'allow_anonymous_remote: true' in this channel"):
        ChannelConfig(address="0.0.0.0")
    assert ChannelConfig(address="0.0.0.0", allow_anonymous_remote=True).address == "0.0.0.0"
    asked = ChannelConfig.model_validate({"address": "0.0.0.0", "authentication": [{"method": "password", "file": "f"}]})
    assert asked.address == "0.0.0.0"
