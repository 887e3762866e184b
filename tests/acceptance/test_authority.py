"""MQTT clients have the authorities that the queue manager's authority records grant to their identity.

The bridge with a remote queue manager (`type: ibm`) connects as a user with the authorities in deploy/mq/bridge.mqsc only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Publish
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import ROOT, QueueManagerProcess, RemoteBridgeProcess

XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"
NOT_AUTHORIZED = 5
REFUSED = 0x80
#: alice may do everything below `plant`, reader and writer one half of it, bob may only connect. No other user is known,
#: except `dev-7`, a device by its client identifier.
SCRIPT = f"""
DEFINE TOPIC(PLANT) TOPICSTR('plant') NOREPLACE
DEFINE QLOCAL(APP.IN) NOREPLACE
SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('alice','dev-7') AUTHADD(PUB,SUB,RESUME)
SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('reader') AUTHADD(SUB,RESUME)
SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('writer') AUTHADD(PUB)
SET AUTHREC PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('alice','reader','writer','bob','dev-7') AUTHADD(PUT)
"""
CHANNELS = """
channels:
- {name: BY.USER, port: 0}
- {name: BY.MCAUSER, port: 0, mcauser: reader}
- {name: BY.CLIENT, port: 0, use_client_id: true}
"""


#: The user of the bridge at the queue manager: one that exists on no machine, because `mqbridge` would be in the group of
#: that name.
BRIDGE_USER = "mqtestbridge"


def bridge_authorities() -> str:
    """Return the commands of deploy/mq/bridge.mqsc for the group of the bridge, with BRIDGE_USER instead."""
    shipped = (ROOT / "deploy" / "mq" / "bridge.mqsc").read_text()
    commands = re.findall(r"^SET AUTHREC(?:.*\+\n)*.*\n", shipped, re.MULTILINE)
    assert commands and all("GROUP('mqbridge')" in command for command in commands)
    return "".join(commands).replace("GROUP('mqbridge')", f"PRINCIPAL('{BRIDGE_USER}')")


def enforcing(queue_manager: str, directory: Path, script: str = SCRIPT, config: str = CHANNELS) -> BridgeProcess:
    """A bridge that is not started, with a queue manager that enforces authorities."""
    data_directory = directory / "data"
    if queue_manager == "embedded":
        path = directory / "authorities.mqsc"
        path.write_text(script)
        settings = f"queue_manager: {{authorities: enforced, scripts: [{path}]}}\n"
        return BridgeProcess(data_directory, config=settings + config)
    host = QueueManagerProcess(data_directory, script + bridge_authorities(), authorities="enforced")
    environment = {"MQBRIDGE_PASSWORD": "none is asked for"}
    user = f"  user: {BRIDGE_USER}\n"
    return RemoteBridgeProcess(
        data_directory, library=queue_manager, queue_manager=host, settings=user, config=config, env=environment
    )


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with at_work(enforcing(queue_manager, tmp_path_factory.mktemp("authority"))) as process:
        yield process


@pytest.fixture
def logged(bridge: BridgeProcess) -> Callable[..., str]:
    """Return the line logged since the test began that contains all of these words."""
    before = len(bridge.log)

    def line(*words: str) -> str:
        lines = [text for text in bridge.log[before:].splitlines() if all(word in text for word in words)]
        assert lines, f"no line with {words} in:\n{bridge.log[before:]}"
        return lines[0]

    return line


def client(bridge: BridgeProcess, client_id: str, user: str | None, **options: Any) -> RawClient:
    return RawClient.connected(bridge.port, client_id, user_name=user, **options)


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "durable"])
def test_a_client_without_authority_is_rejected(
    bridge: BridgeProcess, logged: Callable[..., str], unique: str, clean: bool
) -> None:
    with RawClient(bridge.port, unique, user_name="carol", clean=clean) as stranger:
        connack = stranger.connect()
        assert (connack.return_code, connack.session_present) == (NOT_AUTHORIZED, False)
        stranger.expect_closed()
    assert "MQRC_NOT_AUTHORIZED (2035)" in logged(unique, "CONNACK 5", "'carol'", XMITQ)


def test_mosquitto_reports_the_reason(bridge: BridgeProcess) -> None:
    command = ["mosquitto_pub", "-p", str(bridge.port), "-V", "mqttv311", "-u", "carol", "-t", "t", "-m", "m"]
    with LineProcess(command) as publisher:
        publisher.line_where(lambda line: "not authori" in line)


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
def test_subscriptions(bridge: BridgeProcess, logged: Callable[..., str], unique: str) -> None:
    with client(bridge, unique, "alice") as subscriber:
        # Any topic object at or above the topic can grant the authority. Wildcards are checked from their level on.
        wanted = [("plant/line1", 1), ("offices", 1), ("plant/#", 2), ("#", 0), ("plant", 0), ("+/line1", 0)]
        assert subscriber.subscribe(*wanted) == (1, REFUSED, 2, REFUSED, 0, REFUSED)
    assert "MQRC_NOT_AUTHORIZED (2035)" in logged(unique, "'offices'", "user 'alice'")
    with client(bridge, f"{unique}b", "bob") as subscriber:
        assert subscriber.subscribe(("plant/line1", 1)) == (REFUSED,)
    with client(bridge, f"{unique}w", "writer", clean=False) as subscriber:
        assert subscriber.subscribe(("plant/line1", 1)) == (REFUSED,)


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
@pytest.mark.parametrize("qos", [1, 2])
def test_rejected_publications(bridge: BridgeProcess, logged: Callable[..., str], unique: str, qos: int) -> None:
    with client(bridge, unique, "reader") as publisher:
        publisher.send(Publish("plant/line1", b"no", qos, False, False, 1))
        publisher.expect_closed()
    assert "MQRC_NOT_AUTHORIZED (2035)" in logged(unique, "'plant/line1'", "user 'reader'", "not acknowledged")


def test_mcauser(bridge: BridgeProcess, unique: str) -> None:
    """A client acts as the MCAUSER of its channel, whatever user it claims."""
    port = bridge.ports["BY.MCAUSER"]
    for user in (None, "alice", "carol"):
        with RawClient.connected(port, f"{unique}{user}", user_name=user) as subscriber:
            assert subscriber.subscribe(("plant/#", 0)) == (0,)
            subscriber.send(Publish("plant/line1", b"no", 1, False, False, 1))
            subscriber.expect_closed()


def test_client_identifier_as_user(bridge: BridgeProcess, logged: Callable[..., str], unique: str) -> None:
    port = bridge.ports["BY.CLIENT"]
    with RawClient.connected(port, "dev-7", user_name="carol") as device:
        assert device.subscribe((f"plant/{unique}", 0)) == (0,)
        device.publish(f"plant/{unique}", b"mine", 2)
        assert device.take().payload == b"mine"
    with RawClient(port, "dev-8", user_name="alice") as device:
        assert device.connect().return_code == NOT_AUTHORIZED
    assert "2035" in logged("dev-8", "CONNACK 5", "user 'dev-8'")


def test_authority_that_is_granted_and_revoked(bridge: BridgeProcess, unique: str) -> None:
    """Records take effect at once: for the next client, and for the next subscription."""
    record = f"SET AUTHREC PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('dave')"
    topic = "SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('dave')"

    def code() -> int:
        with RawClient(bridge.port, unique, user_name="dave") as dave:
            return dave.connect().return_code

    bridge.mqsc(f"{record} AUTHADD(PUT)\n{topic} AUTHADD(SUB)\n")
    with client(bridge, unique, "dave") as subscriber:
        assert subscriber.subscribe(("plant/a", 0)) == (0,)
        bridge.mqsc(f"{topic} AUTHRMV(SUB)\n")
        assert subscriber.subscribe(("plant/b", 0)) == (REFUSED,)
    bridge.mqsc(f"DELETE AUTHREC PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('dave')\n")
    # The bridge asks a remote queue manager only once in a while.
    while code() != NOT_AUTHORIZED:
        pass


def test_durable_session_over_a_restart(bridge: BridgeProcess, unique: str) -> None:
    """Authorized subscriptions of a session and the messages for them survive."""
    with client(bridge, unique, "reader", clean=False) as subscriber:
        assert subscriber.subscribe((f"plant/{unique}", 1)) == (1,)
        subscriber.disconnect()
    bridge.restart()
    with client(bridge, f"{unique}w", "writer") as publisher:
        publisher.publish(f"plant/{unique}", b"meanwhile", 1)
        publisher.disconnect()
    with RawClient(bridge.port, unique, user_name="reader", clean=False) as subscriber:
        assert subscriber.connect().session_present
        assert subscriber.take().payload == b"meanwhile"


def test_retained_publications_are_cleared(bridge: BridgeProcess, unique: str) -> None:
    """With a remote queue manager, this is a command for which the bridge has the authority (CLR)."""
    topic = f"plant/{unique}"
    with client(bridge, unique, "alice") as alice:
        alice.publish(topic, b"kept", 1, retain=True)
        alice.publish(topic, b"", 1, retain=True)
        alice.subscribe((topic, 1))
        alice.publish(topic, b"live", 1)
        assert alice.take().payload == b"live"


def test_check_describes_the_clients(queue_manager: str, bridge: BridgeProcess) -> None:
    """`check --connect` reports nothing as missing for the bridge. Missing authorities of channel users are notes."""
    assert bridge.config is not None
    if queue_manager == "embedded":
        settings = bridge.config.read_text().replace("{", f"{{data_directory: {bridge.data_directory}, ", 1)
        bridge.config.with_name("check.yaml").write_text(settings)
    else:
        bridge.config.with_name("check.yaml").write_text(bridge.config.read_text())
    command = [MQBRIDGE, "check", "--connect", str(bridge.config.with_name("check.yaml"))]
    with LineProcess(command, env=bridge.env | {"MQBRIDGE_PASSWORD": "x"}) as check:
        lines = check.rest()
        assert check.process.wait() == 0, lines
    note = "note: user reader lacks authority PUB,SUB for topic object SYSTEM.BASE.TOPIC"
    assert any(line.startswith(note) for line in lines), lines
    assert any("meets all requirements of the bridge" in line for line in lines)


# The embedded queue manager does not check the bridge's own authority.
@pytest.mark.queue_managers("ibmmq")
def test_check_describes_the_bridge(bridge: BridgeProcess) -> None:
    """Each authority that the bridge lacks is a line with the MQSC that grants it."""
    lacking = (
        ("OBJTYPE(QMGR)", "ALTUSR", "-t qmgr", "altusr"),
        (f"PROFILE('{XMITQ}') OBJTYPE(QUEUE)", "BROWSE", f"-n {XMITQ} -t queue", "browse"),
        ("PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC)", "CLR", "-n SYSTEM.BASE.TOPIC -t topic", "clr"),
    )
    for which, authority, *_ in lacking:
        bridge.mqsc(f"SET AUTHREC {which} PRINCIPAL('{BRIDGE_USER}') AUTHRMV({authority})\n")
    try:
        with LineProcess([MQBRIDGE, "check", "--connect", str(bridge.config)], env=bridge.env) as check:
            lines = check.rest()
            assert check.process.wait() == 1, lines
    finally:
        for which, authority, *_ in lacking:
            bridge.mqsc(f"SET AUTHREC {which} PRINCIPAL('{BRIDGE_USER}') AUTHADD({authority})\n")
    remedies = [
        f"SET AUTHREC {which} PRINCIPAL('{BRIDGE_USER}') AUTHADD({authority})"
        f" (or setmqaut -m MQB1 {objects} -p {BRIDGE_USER} +{option})"
        for which, authority, objects, option in lacking
    ]
    assert [line.rpartition(": ")[2] for line in lines if "SET AUTHREC" in line and "note:" not in line] == remedies
