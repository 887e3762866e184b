"""A running bridge reloads its configuration, with connected clients: channels, certificates, limits, the log."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.administration.control_socket import ask
from bridge.administration.requests import Reload
from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.mosquitto import free_port, publish
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient

#: Reloads while messages are published, and messages of each QoS between them.
RELOADS, BETWEEN = 12, 15


def channels(*lines: str, more: str = "", admin: int = 0) -> str:
    return "".join([f"admin: {{port: {admin}}}\n", "channels:\n", *(f"  - {{{line}}}\n" for line in lines), more])


A, B = "name: A, port: 0", "name: B, port: 0"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with at_work(BridgeProcess(tmp_path_factory.mktemp("reload") / "data", config=channels(A, B))) as process:
        yield process


@pytest.fixture
def bridge(shared: BridgeProcess) -> BridgeProcess:
    """A bridge with a configuration file with channels A and B."""
    reload(shared, channels(A, B))
    listed = Administrator(shared).json("channel", "list")
    shared.ports = {channel["name"]: int(channel["endpoint"].rpartition(":")[2]) for channel in listed}
    return shared


@pytest.fixture
def logged(bridge: BridgeProcess) -> Callable[[], str]:
    """Return the log since the test began."""
    begin = len(bridge.log)
    return lambda: bridge.log[begin:]


def write(bridge: BridgeProcess, config: str) -> None:
    assert bridge.config is not None
    bridge.config.write_text(config)


def reload(bridge: BridgeProcess, config: str, *, whole: bool = True) -> list[str]:
    """Reload a file. Return the lines about changes, except those about mappings.

    If the reload is incomplete (`whole` is False), the lines are on standard error.
    """
    write(bridge, config)
    result = Administrator(bridge).run("reload")
    changes, other_output = (result.stdout, result.stderr) if whole else (result.stderr, result.stdout)
    assert (result.exit_code, other_output) == (0 if whole else 1, ""), result.output
    return [line for line in changes.splitlines() if line != "no mapping has changed"]


def port_of(line: str) -> int:
    """The port in the log line of a listening channel."""
    return int(line.split(" on ")[1].split(" ")[0].rpartition(":")[2])


def expect_told(client: RawClient) -> None:
    """An MQTT 5 client gets the reason code Administrative action."""
    assert client.expect(Disconnect).reason_code == ReasonCode.ADMINISTRATIVE_ACTION
    client.expect_closed()


def test_channels_are_added_altered_and_removed(bridge: BridgeProcess) -> None:
    """Clients of other channels continue. Disconnected clients get a reason code."""
    reload(bridge, channels(A))
    stays = RawClient.connected(bridge.ports["A"], "stays", level=5)
    (line,) = reload(bridge, channels(A, B))
    publish(port_of(line), "t", "x", "-i", "by-mosquitto", qos=2)
    goes = RawClient.connected(port_of(line), "goes", level=5)

    # Clients beyond the new limit are rejected. Connected clients stay.
    assert reload(bridge, channels(A, f"{B}, max_clients: 1")) == [
        "channel B changed, for clients that connect from now on"
    ]
    goes.ping()
    assert RawClient(port_of(line), "second").connect().return_code == 3

    # A protocol that was removed is rejected. Connected clients with it stay.
    reload(bridge, channels(A, f"{B}, protocols: [MQTTV3]"))
    goes.ping()
    assert RawClient(port_of(line), "second", level=4).connect().return_code == 1

    # Another port.
    port = free_port()
    assert reload(bridge, channels(A, f"name: B, port: {port}")) == [
        f"channel B listens for MQTT clients on 127.0.0.1:{port} (changed)"
    ]
    expect_told(goes)
    with pytest.raises(ConnectionRefusedError):
        RawClient(port_of(line), "second")

    # Removed, by SIGHUP.
    goes = RawClient.connected(port, "goes", level=5)
    write(bridge, channels(A))
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGHUP)
    expect_told(goes)
    until(lambda: "reload: channel B removed" in bridge.log, lambda: bridge.log)
    stays.ping()


def test_a_port_becomes_a_unix_socket(bridge: BridgeProcess, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    client = RawClient.connected(bridge.ports["B"], "c", level=5)
    assert reload(bridge, channels(A, f"name: B, socket: {path}")) == [
        f"channel B listens for MQTT clients on {path} (changed)"
    ]
    expect_told(client)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        connection.sendall(encode(Connect("c")))
        assert connection.recv(4) == encode(Connack(0))


def test_tls_applies_to_new_clients(bridge: BridgeProcess, tmp_path: Path) -> None:
    """A client without TLS stays connected. New clients get the new certificate."""
    authority = Authority(tmp_path)
    serials = [authority.issue(name).serial_number for name in ("first", "second")]
    files = "certificate_file: {0}/{1}.pem, key_file: {0}/{1}.key"
    port = bridge.ports["B"]
    plain = RawClient.connected(port, "plain")
    for name, serial in zip(("first", "second"), serials, strict=True):
        lines = reload(bridge, channels(A, f"{B}, tls: {{{files.format(tmp_path, name)}}}"))
        assert lines == ["channel B changed, for clients that connect from now on"]
        assert serial_of(port, authority.file) == serial
    plain.ping()
    publish(port, "t", "x", "-h", "localhost", "--cafile", str(authority.file), qos=1)


def serial_of(port: int, authority: Path) -> int:
    context = ssl.create_default_context(cafile=str(authority))
    plain = socket.create_connection(("127.0.0.1", port), PATIENCE)
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        certificate = connection.getpeercert()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


def test_required_client_identity(bridge: BridgeProcess, tmp_path: Path) -> None:
    """Methods of authentication, and their files, are those of the new configuration for new clients."""
    for name, word in (("old", "pa55"), ("new", "w0rd")):
        write_password_file(tmp_path / name, {"carol": PasswordEntry(hash_of(word))})
    port = bridge.ports["B"]
    there = RawClient.connected(port, "there")

    def code(password: bytes | None) -> int:
        user = None if password is None else "carol"
        with RawClient(port, "c", user_name=user, password=password) as client:
            return client.connect().return_code

    assert [code(password) for password in (None, b"pa55", b"w0rd")] == [0, 0, 0]
    for name, expected in (("old", [5, 0, 4]), ("new", [5, 4, 0])):
        reload(bridge, channels(A, f"{B}, authentication: [{{method: password, file: {tmp_path}/{name}}}]"))
        assert [code(password) for password in (None, b"pa55", b"w0rd")] == expected
    reload(bridge, channels(A, B, more="channel_authentication:\n  - {type: BLOCKADDR, address_list: ['127.0.0.1']}\n"))
    assert code(b"w0rd") == 5
    there.ping()


def test_traffic_of_another_channel_is_not_affected(bridge: BridgeProcess) -> None:
    """A publisher and a durable subscriber with QoS 1 and 2, through many reloads: nothing is lost, duplicated or out of
    order.
    """
    variants = [
        channels(A, f"{B}, max_clients: 7"),
        channels(A, more="limits: {retry_interval: 19}\n"),
        channels(A, B, "name: C, port: 0", more="log: {level: debug}\n"),
        channels(A, B),
    ]
    subscriber = RawClient.connected(bridge.ports["A"], "sub", clean=False)
    subscriber.subscribe(("load/1", 1), ("load/2", 2))
    sender = RawClient.connected(bridge.ports["A"], "pub")
    received: dict[str, list[bytes]] = {"load/1": [], "load/2": []}
    doubled: list[Publish] = []
    #: the number of messages per topic, known before the last ones are sent
    total: list[int] = []

    def send() -> None:
        while not total:
            if reloaded.is_set():
                total.append(number() + 1)
            sender.publish("load/1", b"%d" % number(), 1)
            sender.publish("load/2", b"%d" % number(), 2)
            count.append(0)

    def number() -> int:
        return len(count)

    def receive() -> None:
        while not total or any(len(payloads) < total[0] for payloads in received.values()):
            publication = subscriber.wait_for(Publish)
            doubled.extend([publication] * publication.dup)
            received[publication.topic].append(publication.payload)
            subscriber.acknowledge(publication)

    count: list[int] = []
    reloaded = threading.Event()
    threads = [threading.Thread(target=target, daemon=True) for target in (send, receive)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(RELOADS):
            until(lambda turn=turn: number() >= turn * BETWEEN, lambda: bridge.log)  # type: ignore[misc]
            write(bridge, variants[turn % len(variants)])
            answer = ask(bridge.data_directory / "control.sock", Reload())
            assert answer.ok and answer.lines, answer
    finally:
        reloaded.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    expected = [b"%d" % index for index in range(number())]
    assert received == {"load/1": expected, "load/2": expected}
    assert not doubled
    subscriber.ping()
    assert not subscriber.inbox


def test_a_port_in_use_is_reported_and_retried_at_the_next_reload(bridge: BridgeProcess) -> None:
    """The rest is applied. `mqbridge status` and /readyz report the problem until it is fixed."""
    reload(bridge, channels(A))
    console = next(line for line in bridge.announced if line.startswith("console")).split(" at ")[1]
    assert ready(console) == (200, "ok")
    client = RawClient.connected(bridge.ports["A"], "c")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        wanted = f"name: C, port: {listener.getsockname()[1]}"
        lines = reload(bridge, channels(A, B, wanted, more="limits: {in_flight: 7}\n"), whole=False)
        assert [line.split(" ")[0] for line in lines] == ["limits", "channel", "channel"]
        assert lines[2].startswith("channel C added, but does not listen: channel C cannot listen on 127.0.0.1")
        RawClient.connected(port_of(lines[1]), "d").disconnect()
        assert ready(console)[0] == 503
        assert "channel C cannot listen on 127.0.0.1" in ready(console)[1]
        status = Administrator(bridge).run("status")
        assert status.exit_code == 1
        assert "2 of 3 channels listen" in status.stdout
        assert "PROBLEM (critical): channel C cannot listen on 127.0.0.1" in status.stdout
    (line,) = reload(bridge, channels(A, B, wanted, more="limits: {in_flight: 7}\n"))
    assert line.endswith("(tried again)")
    assert ready(console) == (200, "ok")
    RawClient.connected(port_of(line), "e").disconnect()
    client.ping()


def ready(console: str) -> tuple[int, str]:
    """The status and the first line of /readyz. Problems of earlier tests may follow."""
    try:
        with urllib.request.urlopen(f"{console}readyz", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode().partition("\n")[0]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().partition("\n")[0]


#: A mistake in a file that also contains valid changes, and its error message.
MISTAKES = {
    "YAML": ("limits: {", "expected"),
    "a value": ("limits: {in_flight: 0}\n", "in_flight"),
    "a key": ("limts: {in_flight: 7}\n", "limts"),
    "a mapping": ('mappings: {m: {from: {mqtt: "a/#/b"}, to: {queue: Q}}}\n', "a/#/b"),
    "a link that is not there": ('mappings: {m: {from: {mqtt: "a", link: none}, to: {queue: Q}}}\n', "none"),
    "no certificate": (
        "  - {name: T, port: 0, tls: {certificate_file: /nowhere/server.pem}}\n",
        "channel T cannot use TLS: tls.certificate_file /nowhere/server.pem cannot be used: No such file or directory",
    ),
    "no authenticator": (
        "  - {name: T, port: 0, authentication: [{method: plugin, name: none}]}\n",
        "authenticator 'none' is not installed",
    ),
    "no method": ("  - {name: T, port: 0, authentication_methods: [NONE]}\n", "NONE"),
    "no audit log": ("audit_log: {file: /nowhere/audit.log}\n", "audit_log.file /nowhere/audit.log: No such file"),
}


def test_a_file_with_a_mistake_changes_nothing(
    bridge: BridgeProcess, logged: Callable[[], str], tmp_path: Path
) -> None:
    """Wherever it is, and whatever else has changed: nothing changes, the audit log included."""
    audit = tmp_path / "audit.log"
    before = channels(A, B, more=f"audit_log: {{file: {audit}}}\n")
    reload(bridge, before)
    client = RawClient.connected(bridge.ports["B"], "c", level=5)
    for mistake, says in MISTAKES.values():
        write(bridge, channels("name: A, port: 0, protocols: [MQTTV3]", more=mistake + "log: {level: debug}\n"))
        result = Administrator(bridge).run("reload")
        assert (result.exit_code, result.stdout) == (1, ""), mistake
        assert says in result.stderr, (mistake, result.stderr)
        assert result.stderr.splitlines()[-1] == "nothing has changed"
        client.ping()
        RawClient.connected(bridge.ports["A"], "d").disconnect()
    assert audit.read_text().count('"event":"reload refused"') == len(MISTAKES)
    assert reload(bridge, before) == []
    assert "DEBUG" not in logged()


def test_reloads_at_the_same_time(bridge: BridgeProcess, logged: Callable[[], str]) -> None:
    """Concurrent reloads run one after the other, and the bridge ends up with the file's configuration."""
    reload(bridge, channels(A))
    until(lambda: "MQB0101I reload: channel B removed" in logged(), logged)
    before = bridge.log.count("MQB0101I reload: channel B listens")
    client = RawClient.connected(bridge.ports["A"], "c")
    write(bridge, channels(A, B))
    assert bridge.process is not None
    with ThreadPoolExecutor() as pool:
        requests = [pool.submit(ask, bridge.data_directory / "control.sock", Reload()) for _ in range(3)]
        bridge.process.send_signal(signal.SIGHUP)
        answers = [request.result(PATIENCE) for request in requests]
    assert all(answer.ok for answer in answers)
    until(lambda: bridge.log.count("MQB0101I reload: channel B listens") == before + 1, logged)
    assert sum("channel B listens" in "".join(answer.lines) for answer in answers) <= 1
    client.ping()


# The queue manager is not involved.
@pytest.mark.queue_managers("embedded")
def test_command_line_options_survive_a_reload(new_bridge: Callable[..., BridgeProcess]) -> None:
    """--port and --log-level apply unless the file changes the same option."""
    bridge = new_bridge(config=channels("name: A, port: 1883"), arguments=["--log-level", "warning"]).start()
    client = RawClient.connected(bridge.port, "c")
    lines = reload(bridge, channels("name: A, port: 1883, max_clients: 9", more="log: {format: json}\n"))
    assert lines == ["log: warning and above, as json", "channel A changed, for clients that connect from now on"]
    client.ping()
    RawClient.connected(bridge.port, "d").disconnect()
    assert "client d" not in bridge.log
    port = free_port()
    lines = reload(bridge, channels(f"name: A, port: {port}", more="log: {level: info}\n"))
    assert lines[0] == "log: warning and above, as text"  # the file specifies the default value
    assert port_of(lines[1]) == port


def test_limits_apply_to_new_sessions(bridge: BridgeProcess) -> None:
    """An existing session keeps its window. Limits of retained publications apply at once."""
    reload(bridge, channels(A))
    clients = {}
    for window, name in ((20, "old"), (2, "new")):
        if name == "new":
            lines = reload(bridge, channels(A, more="limits: {in_flight: 2, retained_bytes: 2048}\n"))
            assert lines == ["limits changed, for clients, sessions and messages from now on"]
        clients[name] = RawClient.connected(bridge.port, name, clean=False)
        clients[name].subscribe((f"to/{name}", 1))
        with RawClient.connected(bridge.port, "pub") as sender:
            for _ in range(5):
                sender.publish(f"to/{name}", b"x", 1)
        for _ in range(min(window, 5)):
            clients[name].wait_for(Publish)
        clients[name].ping()
        assert not clients[name].inbox
    with RawClient.connected(bridge.port, "pub", level=5) as sender:
        sender.send(Publish("kept", bytes(3_000), 1, True, False, 1))
        assert sender.expect(Puback).reason_code == ReasonCode.QUOTA_EXCEEDED


def test_changes_that_need_a_restart_are_reported_and_not_applied(bridge: BridgeProcess) -> None:
    more = f"queue_manager: {{listener: {{port: {free_port()}}}}}\n"
    lines = reload(bridge, channels(A, B, more=more, admin=free_port()))
    assert lines == [
        f"{section} in {bridge.config} has changed, too: this needs a restart" for section in ("queue_manager", "admin")
    ]
