"""`bridge_bit` and `version` of a link, changed by reload: whether live publications become retained ones of an MQ topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish
from tests.helpers.patience import until

CONFIG = """\
control_socket: {directory}/control
links:
  old: {{host: 127.0.0.1, port: {port}, client_id: "{client_id}", {options}}}
mappings:
  in: {{from: {{mqtt: "in/{{x}}", link: old}}, to: {{topic: "here/{{x}}"}}}}
"""
PLAIN, BRIDGE, VERSION_5 = "version: 3.1.1", "version: 3.1.1, bridge_bit: true", 'version: "5"'


@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_the_retain_flag_is_kept_as_when_the_session_was_new(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    mosquitto = Mosquitto(tmp_path).start()

    def config(options: str, client_id: str) -> str:
        return CONFIG.format(directory=tmp_path, port=mosquitto.port, options=options, client_id=client_id)

    try:
        bridge = new_bridge(config=config(PLAIN, "one")).start()
        assert bridge.config is not None
        whole = bridge.config.read_text().removesuffix(config(PLAIN, "one"))
        until(lambda: "MQB6001I" in bridge.log, lambda: bridge.log)
        with Subscriber(bridge.port, "here/#", qos=1) as live:
            for options, client_id, retained in (
                (PLAIN, "one", False),
                (BRIDGE, "one", False),
                (BRIDGE, "two", True),
                (PLAIN, "two", True),
                (PLAIN, "three", False),
                (VERSION_5, "three", False),
                (VERSION_5, "four", True),
                (BRIDGE, "four", True),
                (PLAIN, "four", True),
            ):
                connections = bridge.log.count("MQB6001I")
                if bridge.config.read_text() != whole + config(options, client_id):
                    bridge.config.write_text(whole + config(options, client_id))
                    Administrator(bridge).does("reload")
                    until(lambda before=connections: bridge.log.count("MQB6001I") > before, lambda: bridge.log)  # type: ignore[misc]
                publish(mosquitto.port, "in/a", "x", "-r", qos=1)
                assert live.message()["payload"] == "x"
                with Subscriber(bridge.port, "here/#", qos=1) as late:
                    publish(bridge.port, "here/end", "end", qos=1)
                    expected = [{"topic": "here/a", "payload": "x", "qos": 1, "retain": 1}] if retained else []
                    assert [late.message() for _ in expected] == expected
                    assert late.message()["topic"] == "here/end"
                assert live.message()["topic"] == "here/end"
                # Otherwise it would be sent again with the next SUBSCRIBE.
                publish(mosquitto.port, "in/a", "", "-r", qos=1)
                assert not live.message()["payload"]
                publish(bridge.port, "here/a", "", "-r", qos=1)
                assert not live.message()["payload"]
        # Each time the options differ from those of the session's subscription.
        assert bridge.log.count("MQB5314W") == 4
    finally:
        mosquitto.stop()
