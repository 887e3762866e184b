"""Start and stop as seen by a user and systemd, SIGTERM under load, and failures to start."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bridge import __version__
from bridge.mqtt.connection import KEEP_ALIVE_GRACE
from bridge.mqtt.packets import Pingreq, Pingresp, Publish
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.exactly_once import DurableSubscriber, Publisher, first_deliveries, repeated
from tests.helpers.forked_process import MQBRIDGE, run
from tests.helpers.line_process import LineProcess, suspend
from tests.helpers.mosquitto import Subscriber
from tests.helpers.patience import PATIENCE
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

# What it prints -------------------------------------------------------------------------------------------------------


def run_on_terminal(
    *words: str | Path, wanted: str, errors: Path, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Return the bridge on a terminal, the terminal, and the output up to a text."""
    master, terminal = pty.openpty()
    # The tests may have been started with SIGHUP ignored.
    command = ["env", "--default-signal=HUP", "setsid", "--ctty", MQBRIDGE, "run", "--port", "0", *words]
    with errors.open("wb") as log:
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=log, env=env)
    os.close(terminal)
    printed = b""
    while wanted.encode() not in printed:
        printed += os.read(master, 1000)
    return process, master, printed.decode()


def test_output_for_a_new_user(tmp_path: Path) -> None:
    """Two suggested commands, which work as printed. The log names the queue manager and the channels.

    Without a configuration file, the bridge stops in order when the terminal is closed, although it can no longer print.
    """
    data_directory, log = tmp_path / "data", tmp_path / "log"
    process, terminal, printed = run_on_terminal("--data-dir", data_directory, wanted="hello from MQ", errors=log)
    try:
        first, subscribe, publish = (line.strip() for line in printed.splitlines()[:3])
        assert first == "Try next, each in a separate terminal:"
        port = int(subscribe.split(" -p ")[1].split()[0])
        assert subscribe.startswith(f"mosquitto_sub -p {port} ")
        text = log.read_text()
        assert f"queue manager MQB1 (embedded), data in {data_directory}" in text
        assert f"channel PLAIN.MQTT listens for MQTT clients on 127.0.0.1:{port}" in text
        with Subscriber(port, "demo/#") as subscriber:
            # With the path of the bridge, or by its name if it is in PATH.
            assert publish.startswith((f"{MQBRIDGE} mq pub ", "mqbridge mq pub "))
            subprocess.run(["sh", "-c", publish], check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
            assert subscriber.message() == {"topic": "demo/hello", "payload": "hello from MQ", "qos": 0, "retain": 0}
    finally:
        os.close(terminal)
        assert process.wait(PATIENCE) == 0
    assert " ERROR " not in log.read_text()


# With the embedded queue manager, the line names the data directory.
@pytest.mark.queue_managers("ibmmq")
def test_the_suggested_command_names_the_configuration_file(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    bridge = new_bridge()
    assert isinstance(bridge, RemoteBridgeProcess) and bridge.config is not None
    bridge.env["MQI_STANDIN"] = bridge.queue_manager.start().place
    process, terminal, printed = run_on_terminal(
        bridge.config, wanted="hello from MQ", errors=tmp_path / "log", env=bridge.env
    )
    while "\n" not in printed[printed.index("hello from MQ") :]:
        printed += os.read(terminal, 1000).decode()
    publish = printed.splitlines()[2].strip()
    try:
        assert f"--config {bridge.config}" in publish
        port = int(printed.split(" -p ")[1].split()[0])
        with Subscriber(port, "demo/#") as subscriber:
            subprocess.run(
                ["sh", "-c", publish], check=True, timeout=PATIENCE, env=bridge.env, stdout=subprocess.DEVNULL
            )
            assert subscriber.message()["payload"] == "hello from MQ"
    finally:
        process.terminate()
        os.close(terminal)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_has_numbered_events_and_standard_output_is_empty(tmp_path: Path, log_format: str) -> None:
    config = tmp_path / "bridge.yaml"
    config.write_text(f"log: {{format: {log_format}}}\nqueue_manager: {{data_directory: {tmp_path}/data}}\n")
    process = subprocess.Popen(
        [MQBRIDGE, "run", config, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None and process.stdout is not None
    lines: list[str] = []
    while "MQB0012I" not in (lines[-1] if lines else ""):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    process.send_signal(signal.SIGHUP)
    lines.append(process.stderr.readline())
    process.terminate()
    lines += process.stderr.read().splitlines()
    assert process.wait(PATIENCE) == 0
    assert process.stdout.read() == ""
    if log_format == "json":
        events = [(entry["id"], entry["message"]) for entry in map(json.loads, lines)]
    else:
        events = [(event[1], event[2]) for line in lines if (event := re.search(r"(MQB\d{4}[IWES]) (.*)", line))]
        assert len(events) == len(lines)
    identifiers = [identifier for identifier, _ in events]
    assert identifiers[0] == "MQB0011I" and identifiers[-2:] == ["MQB0014I", "MQB0015I"], events
    assert {"MQB0012I", "MQB0013I"} < set(identifiers)
    assert events[0][1].startswith(
        f"starting mqbridge {__version__}: configuration {config}, queue manager MQB1 (embedded)"
    )
    (ready,) = (message for identifier, message in events if identifier == "MQB0012I")
    assert re.fullmatch(r"ready after \d+\.\d s: queue manager MQB1, channels PLAIN.MQTT on 127\.0\.0\.1:\d+", ready)


def test_the_bridge_listens_on_loopback_only_by_default(bridge: BridgeProcess) -> None:
    addresses = set()
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        for line in Path(table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            address, port = local.split(":")
            if state == "0A" and int(port, 16) == bridge.port:
                raw = bytes.fromhex(address)
                words = b"".join(raw[index : index + 4][::-1] for index in range(0, len(raw), 4))
                addresses.add(socket.inet_ntop(family, words))
    assert addresses == {"127.0.0.1"}


# What it refuses ------------------------------------------------------------------------------------------------------


# Listening fails after the start of either queue manager.
@pytest.mark.queue_managers("embedded")
def test_a_port_in_use(tmp_path: Path, bridge: BridgeProcess) -> None:
    process = run("run", "--data-dir", tmp_path / "data", "--port", str(bridge.port))
    assert process.returncode == 1
    assert f"channel PLAIN.MQTT cannot listen on 127.0.0.1:{bridge.port}" in process.stderr
    assert "make run ARGS='--port 0'" in process.stderr
    assert "Traceback" not in process.stderr
    assert process.stderr.count("MQB0016S cannot start: ") == 1 == process.stderr.count("CRITICAL")


# IBM MQ has no data directory. test_lost_queue_manager.py runs two bridges on one queue manager.
@pytest.mark.queue_managers("embedded")
def test_a_second_bridge_on_the_same_data_directory(bridge: BridgeProcess) -> None:
    process = run("run", "--data-dir", bridge.data_directory, "--port", "0")
    assert process.returncode == 1
    assert bridge.process is not None
    assert f"{bridge.data_directory} is in use by another bridge (process {bridge.process.pid})" in process.stderr
    assert "Traceback" not in process.stderr
    with RawClient.connected(bridge.port, "still-served") as client:
        client.ping()


def test_an_invalid_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = run("run", "--data-dir", tmp_path / "file", "--port", "0")
    assert process.returncode == 1
    assert str(tmp_path / "file") in process.stderr
    assert "Traceback" not in process.stderr


def test_a_data_directory_of_another_user_causes_a_hint(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o555)
    # As an ordinary user, with limited permissions.
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command += [str(MQBRIDGE), "run", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert process.returncode == 1
    assert "Permission denied" in process.stderr and "hint: if another user started the bridge" in process.stderr


def test_a_configuration_with_mistakes(tmp_path: Path) -> None:
    """Exit status 2, one line per mistake, and a summary (tests/unit/config and tests/unit/cli check the lines)."""
    file = tmp_path / "bridge.yaml"
    file.write_text("channels:\n  - nmae: X\n    port: abc\n    address: 0.0.0.0\nlimits:\n  in_flight: 0\n")
    process = run("run", file)
    assert (process.returncode, process.stdout) == (2, "")
    *lines, summary = process.stderr.splitlines()
    assert summary == f"mqbridge: error: {file}: 4 mistakes"
    assert [line.removeprefix(f"{file}:").partition(":")[0] for line in lines] == ["2", "3", "4", "6"]


# Stopping -------------------------------------------------------------------------------------------------------------


def test_nohup_keeps_a_bridge_running(tmp_path: Path) -> None:
    data_directory = str(tmp_path / "data")
    bridge = LineProcess(["nohup", MQBRIDGE, "run", "--port", "0", "--data-dir", data_directory])
    bridge.line_where(lambda line: "MQB0012I" in line)
    bridge.process.send_signal(signal.SIGHUP)
    assert run("mq", "pub", "demo/hello", "x", "--data-dir", data_directory).returncode == 0
    bridge.process.send_signal(signal.SIGTERM)
    bridge.line_where(lambda line: "stopping" in line)
    assert bridge.process.wait(PATIENCE) == 0


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_the_bridge_stops_in_order(own_bridge: BridgeProcess, queue_manager: str) -> None:
    """Exit status 0, closed connections, no process left, and no error in the log.

    MQ applications end with an embedded queue manager, and continue with a remote one. Ctrl-C has the same effect as SIGTERM.
    """
    bridge = own_bridge
    with RawClient.connected(bridge.port, "one") as client, bridge.mq_subscriber("#", "--json") as application:
        client.ping()
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGINT if queue_manager == "embedded" else signal.SIGTERM)
        assert bridge.ended() == 0
        client.expect_closed()
        if queue_manager == "embedded":
            assert application.wait() == 4
            assert any("MQRC_" in line for line in application.rest())
        else:
            bridge.mq("pub", "any", "goes on")
            assert application.json()["body"] == "goes on"
    assert bridge.announced[-1] == "stopped, exit status 0"
    assert " ERROR " not in bridge.log
    assert "MQB0006W" not in bridge.log  # there is no systemd that could be notified


@pytest.mark.queue_managers("embedded")
def test_after_a_pause_of_the_process_clients_that_sent_in_time_stay_connected(own_bridge: BridgeProcess) -> None:
    """A virtual machine that is migrated pauses for longer than a keep-alive. The PINGREQ waits in the socket."""
    bridge, keep_alive = own_bridge, 3
    with RawClient.connected(bridge.port, "patient", keep_alive=keep_alive) as client:
        assert bridge.process is not None
        suspend(bridge.process.pid)
        client.send(Pingreq())
        time.sleep(KEEP_ALIVE_GRACE * keep_alive + 0.5)
        bridge.process.send_signal(signal.SIGCONT)
        client.wait_for(Pingresp)
        client.ping()


# test_crash.py kills a bridge on IBM MQ.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
@pytest.mark.parametrize(
    ("qos", "count"),
    [(2, 1_000), pytest.param(1, 4_000, marks=pytest.mark.slow), pytest.param(2, 4_000, marks=pytest.mark.slow)],
)
def test_sigterm_under_load(own_bridge: BridgeProcess, qos: int, count: int) -> None:
    """Several times during publications and deliveries: each time, it stops in order and nothing is lost."""
    bridge = own_bridge
    publisher = Publisher("sender", [f"load/{n}" for n in range(3)], count, qos)
    subscriber = DurableSubscriber("keeper", "load/#", qos)
    subscriber.connect(bridge.port)
    publisher.connect(bridge.port)
    marks = [count // 4, count * 5 // 8]
    while not publisher.finished or len(subscriber.numbers) < count:
        if marks and len(publisher.acknowledged) >= marks[0]:
            marks.pop(0)
            assert bridge.process is not None
            bridge.process.send_signal(signal.SIGTERM)
            work_until_closed(publisher, subscriber)
            assert bridge.ended() == 0, bridge.log
            bridge.start()
            subscriber.connect(bridge.port)
            publisher.connect(bridge.port)
        if not publisher.finished:
            publisher.step()
        if publisher.finished or len(subscriber.numbers) < len(publisher.acknowledged):
            step_if_anything(subscriber)
    print(f"{len(subscriber.received)} received, {len(repeated(subscriber.received))} of them again")
    assert not marks
    assert publisher.acknowledged == set(range(count)) == subscriber.numbers
    assert subscriber.published_twice == [], (
        "publications that the bridge had taken before it stopped were not acknowledged"
    )
    if qos == 2:
        assert repeated(subscriber.received) == []
    for numbers in first_deliveries(subscriber.received).values():
        assert numbers == sorted(numbers)
    assert subscriber.undeclared == [], "what came again after an orderly stop came without DUP"


def work_until_closed(publisher: Publisher, subscriber: DurableSubscriber) -> None:
    """Let both continue until the bridge closes their connections."""
    for client in (publisher, subscriber):
        try:
            while True:
                client.step(PATIENCE)
        except ConnectionClosed:
            client.close()


def step_if_anything(subscriber: DurableSubscriber) -> None:
    with contextlib.suppress(TimeoutError):
        subscriber.step(0.2)


@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_sigterm_with_a_client_that_never_reads(new_bridge: Callable[..., BridgeProcess]) -> None:
    """The client does not prevent the bridge from stopping."""
    bridge = new_bridge(config="limits:\n  shutdown_timeout: 1 s\n").start()
    with (
        RawClient(bridge.port, "slow", receive_buffer=4_096, clean=False) as slow,
        RawClient.connected(bridge.port, "sender") as sender,
    ):
        slow.connect()
        slow.subscribe(("flood", 1))
        for n in range(20):
            sender.publish("flood", b"%d" % n + b"x" * 500_000, 1)
        assert bridge.stop() == 0
    bridge.start()
    with RawClient(bridge.port, "slow", clean=False) as slow:
        slow.connect()
        received = [slow.take() for _ in range(20)]
        assert [int(publication.payload.rstrip(b"x")) for publication in received] == list(range(20))


# systemd --------------------------------------------------------------------------------------------------------------


# The queue manager is not involved.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_notifications_to_systemd(tmp_path: Path, new_bridge: Callable[..., BridgeProcess]) -> None:
    """READY=1 when clients can connect, WATCHDOG=1 periodically, STOPPING=1 (sd_notify(3), Type=notify).

    The journal does not get the suggested commands.
    """
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        notifications.bind(address)
        notifications.settimeout(PATIENCE)
        bridge = new_bridge(env={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"})
        bridge.log_file.touch()
        journal = bridge.log_file.stat()
        bridge.env["JOURNAL_STREAM"] = f"{journal.st_dev}:{journal.st_ino}"
        bridge.start()
        first = notifications.recv(4_096).decode().splitlines()
        assert first[0] == "READY=1"
        with RawClient.connected(bridge.port, "ready") as client:
            client.ping()
        assert [notifications.recv(4_096) for _ in range(5)] == [b"WATCHDOG=1"] * 5
        assert bridge.stop() == 0
        while (last := notifications.recv(4_096)) == b"WATCHDOG=1":
            pass
        assert last.decode().splitlines()[0] == "STOPPING=1"
    assert "stopping" in bridge.log and "try next" not in bridge.log.lower() and " mq pub " not in bridge.log


# Channels -------------------------------------------------------------------------------------------------------------


# The queue manager is not involved.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_a_little_endian_channel(new_bridge: Callable[..., BridgeProcess]) -> None:
    """The little-endian dialect on one channel, MQTT on the other. They exchange messages of each QoS."""
    config = "channels:\n  - {name: BIG, port: 0}\n  - {name: LITTLE, port: 0, byte_order: little}\n"
    bridge = new_bridge(config=config).start()
    with (
        RawClient.connected(bridge.ports["BIG"], "big") as big,
        RawClient(bridge.ports["LITTLE"], "little", level=3, byte_order="little", keep_alive=600) as little,
    ):
        assert little.connect().return_code == 0
        for client in (big, little):
            client._packet_id = 0x0102
            client.subscribe((f"to/{client.packet.client_id}", 2))
        for qos in (0, 1, 2):
            big.publish("to/little", b"hello", qos)
            publish = little.take()
            assert publish == Publish("to/little", b"hello", qos, False, False, publish.packet_id)
            little.publish("to/big", b"hello yourself", qos)
            publish = big.take()
            assert publish == Publish("to/big", b"hello yourself", qos, False, False, publish.packet_id)
        with bridge.mq_subscriber("to/mq", "--limit", "1", "--json") as application:
            packet_id = little.publish("to/mq", b"x", 1)
            folders = application.json()["rfh2"][0]["folders"]
            assert folders["mqtt"] == {"clientId": "little", "qos": 1, "msgid": packet_id}
        # Words have the byte order of the dialect: least significant byte first, string lengths last.
        little.send_bytes(b"\x32\x06\x00\x01a\x34\x12x")
        assert little.socket.recv(100) == b"\x40\x02\x34\x12"


def test_commands_of_an_administrator(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe((f"{unique}/+", 1))
        client.publish(f"{unique}/r", b"x", 1, retain=True)
        client.take()
        queues = {queue["QUEUE"] for queue in bridge.mq_json("display", "QLOCAL(*)")}
        assert {
            "SYSTEM.MQTT.TRANSMIT.QUEUE",
            "SYSTEM.MQTT.PERSISTENT.STATE",
            "SYSTEM.DEAD.LETTER.QUEUE",
        } <= queues
        assert bridge.mq_json("display", "QMGR")[0]["DEFXMITQ"] == "SYSTEM.MQTT.TRANSMIT.QUEUE"
        status = bridge.mq_json("display", "QSTATUS('SYSTEM.MQTT.TRANSMIT.QUEUE')")[0]
        assert status["IPPROCS"] >= 1 and "CURDEPTH" in status
        assert "SYSTEM.BASE.TOPIC" in {topic["TOPIC"] for topic in bridge.mq_json("display", "TOPIC(*)")}
        topic = bridge.mq_json("display", f"TPSTATUS('{unique}/r')")[0]
        assert (topic["RETAINED"], topic["PUB"]) == ("YES", "ENABLED")
        refused = bridge.run_mq("get", "NO.SUCH.QUEUE")
        assert refused.returncode == 3
        assert b"MQRC_UNKNOWN_OBJECT_NAME (2085)" in refused.stderr
        held = "SYSTEM.MQTT.BRIDGE.LOCK" if isinstance(bridge, RemoteBridgeProcess) else "SYSTEM.MQTT.TRANSMIT.QUEUE"
        result = bridge.run_mq("get", held)
        assert result.returncode == 1
        assert b"MQRC_OBJECT_IN_USE (2042)" in result.stderr
        client.publish(f"{unique}/r", b"", 1, retain=True)
