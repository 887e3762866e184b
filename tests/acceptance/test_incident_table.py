"""Incidents with a running bridge: status, metric, alert, log and console report them, and the remedy ends them."""

from __future__ import annotations

import copy
import json
import re
import secrets
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from bridge.archive.schema import archive_files
from bridge.mqtt.packets import Publish
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from bridge.service.payload_schemas import INVALID_PERIOD, MANY_INVALID
from bridge.service.problems import (
    ACKNOWLEDGEMENT_TIMEOUT,
    MANY_REJECTIONS,
    MANY_TAKEOVERS,
    OLD_BACKLOG,
    REJECTION_PERIOD,
)
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.certificate_authority import make
from tests.helpers.console import Console
from tests.helpers.fake_broker import FakeBroker
from tests.helpers.faulty_disk import compiled
from tests.helpers.installed import CLIENT_PACKAGES, built
from tests.helpers.known_secrets import register
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.remedies import execute
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.scrape import Scrape, promtool

ALERTS = {
    rule["alert"]: rule
    for rule in yaml.safe_load(Path("deploy/alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
}
TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
SCRIPT = "DEFINE QLOCAL(UP)\nDEFINE QLOCAL(FULL) MAXDEPTH(2)\n"
#: The channel of IBM MQ that the bridge uses.
CHANNEL = "DEV.APP.SVRCONN"
#: A configuration, and the addition of an incident.
CONFIG: dict[str, Any] = {
    "channels": [{"name": "OPEN", "port": 0}],
    "mappings": {"orders": {"from": {"mqtt": "orders/{queue}", "link": "local"}, "to": {"queue": "{queue}"}}},
}


TOKEN, FORMER, PRESENT = (secrets.token_hex(16) for _ in range(3))
for secret in (TOKEN, FORMER, PRESENT):
    register(secret)


class Site:
    """A bridge with an incident, and its repair."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "broker").mkdir()
        self.broker = Mosquitto(directory / "broker")
        self.users, self.certificates = directory / "users", directory / "certificates"
        self.fault, self.shift, self.archive = directory / "fault", directory / "shift", directory / "archive"
        tokens = directory / "tokens"
        tokens.write_text(f"admin:change:{TOKEN}\n")
        tokens.chmod(0o600)
        self.config = {
            **copy.deepcopy(CONFIG),
            "control_socket": str(directory / "control"),
            "admin": {"port": 0, "token_file": str(tokens)},
        }
        #: the problem, as it is reported
        self.problem: dict[str, Any] = {}
        #: a BridgeProcess, or a RemoteBridgeProcess
        self.bridge: Any = None
        self.clients: list[RawClient] = []
        self.fake_broker: Any = None
        self.pipeline: LineProcess | None = None
        #: the beginning of the configuration for IBM MQ
        self.before = ""

    def write(self) -> None:
        """Write the configuration file."""
        text = yaml.safe_dump(self.config)
        self.bridge.config.write_text(self.before + text, encoding="utf-8")

    def prepare(self, incident: Incident) -> None:
        if incident.embedded:
            script = self.directory / "objects.mqsc"
            script.write_text(SCRIPT)
            self.config["queue_manager"] = {"scripts": [str(script)]}
            self.bridge = BridgeProcess(self.directory / "data", config="{}", env={"MQBRIDGE_TEST": "incident"})
        else:
            host = QueueManagerProcess(self.directory / "data", SCRIPT)
            self.bridge = RemoteBridgeProcess(self.directory / "data", queue_manager=host)
            self.before = self.bridge.config.read_text(encoding="utf-8")
        incident.prepare(self)
        self.write()

    def run(self, command: str) -> str:
        """Run a command of mqbridge that must succeed."""
        return Administrator(self.bridge).does(*command.split())

    def problems(self) -> list[dict[str, Any]]:
        status = Administrator(self.bridge).run("status", "--json").stdout
        return json.loads(status)["problems"] if status else []

    def client(self, name: str, channel: str = "OPEN", **options: Any) -> RawClient:
        client = RawClient.connected(self.bridge.ports[channel], name, **options)
        self.clients.append(client)
        return client

    def discard(self) -> None:
        if self.pipeline is not None:
            self.pipeline.kill()
        if self.bridge is not None:
            self.bridge.discard()
        self.broker.stop()
        for client in self.clients:
            client.socket.close()


def nothing(site: Site) -> None:
    """Nothing to do."""


class Incident(NamedTuple):
    """An incident, its reports, and the action that ends it."""

    kind: str
    #: a part of the description
    what: str
    #: the alert whose expression must be true
    alert: str
    cause: Callable[[Site], object]
    remedy: Callable[[Site], object]
    prepare: Callable[[Site], object] = nothing
    #: a part of the remedy or of the printed command
    hint: str = ""
    #: seconds until it is reported, in addition to the patience of tests, and until it ends after the remedy. None: an hour
    begins: float = 0.0
    ends: float | None = 0.0
    #: kinds of other problems that have the same cause or come with the preparation
    others: frozenset[str] = frozenset()
    #: a part of the log at its end
    ended: str = "MQB0303I problem ended: "
    embedded: bool = True


# The causes and remedies -------------------------------------------------------------------------------------------------


def with_passwords(site: Site) -> None:
    write_password_file(site.users, {"pump-7": PasswordEntry(hash_of("former"))})
    method = {"method": "password", "file": str(site.users)}
    site.config["channels"].append({"name": "PASSWORDS", "port": 0, "authentication": [method]})


def log_in(site: Site) -> int:
    port = site.bridge.ports["PASSWORDS"]
    with RawClient(port, "pump-7", user_name="pump-7", password=b"present") as client:
        return client.connect().return_code


def log_in_in_vain(site: Site) -> None:
    assert [log_in(site) for _ in range(MANY_REJECTIONS)] == [4] * MANY_REJECTIONS


def correct_password(site: Site) -> None:
    write_password_file(site.users, {"pump-7": PasswordEntry(hash_of("present"))})
    until(lambda: log_in(site) == 0)


def with_certificate(site: Site) -> None:
    site.certificates.mkdir()
    make(site.certificates, days=100)
    tls = {
        name: str(site.certificates / f"server.{end}")
        for name, end in (("certificate_file", "pem"), ("key_file", "key"))
    }
    site.config["channels"].append({"name": "TLS", "port": 0, "tls": tls})


def renew_certificate(days: int) -> Callable[[Site], None]:
    def renew(site: Site) -> None:
        new = site.directory / f"certificates-{days}"
        new.mkdir()
        make(new, days=days)
        for name in ("server.key", "server.pem"):
            shutil.copyfile(new / name, site.certificates / name)
        site.run("reload")

    return renew


def take_over(site: Site) -> None:
    """Run two programs with one client identifier."""
    for _ in range(MANY_TAKEOVERS + 1):
        site.client("pump-7")


def use_other_identifier(site: Site) -> None:
    site.client("pump-8").publish("t", b"x", 1)


def with_schema(site: Site) -> None:
    file = site.directory / "temp.json"
    file.write_text('{"type": "string"}')
    site.config["channels"][0]["schemas"] = {"temp": str(file)}


def publish_invalid(site: Site) -> None:
    client = RawClient.connected(site.bridge.port, "pump-7", level=5)
    site.clients.append(client)
    for _ in range(MANY_INVALID):
        client.publish("temp", b"21.5", 1)


def correct_schema(site: Site) -> None:
    (site.directory / "temp.json").write_text('{"type": "number"}')
    site.run("reload")
    publish_invalid(site)


def write_table(content: str) -> Callable[[Site], None]:
    def write(site: Site) -> None:
        (site.directory / "devices.csv").write_text(content)

    return write


def with_table(site: Site) -> None:
    write_table("id,queue\nd7,ONE\n")(site)
    site.config["tables"] = {"devices": {"file": str(site.directory / "devices.csv"), "key": "id"}}
    mapping = {"from": {"mqtt": "t/{id}", "link": "local"}, "to": {"queue": "{devices[id].queue}"}}
    site.config["mappings"]["devices"] = mapping


def publish(topic: str, number: int = 1) -> Callable[[Site], None]:
    def publish_all(site: Site) -> None:
        with RawClient.connected(site.bridge.port, "shop") as shop:
            for _ in range(number):
                shop.publish(topic, b"order", 1)

    return publish_all


def mqsc(script: str) -> Callable[[Site], object]:
    return lambda site: site.bridge.mqsc(script + "\n")


def run(*commands: str) -> Callable[[Site], None]:
    def run_all(site: Site) -> None:
        for command in commands:
            site.run(command)

    return run_all


def flood(site: Site) -> None:
    client = site.client("pump-7")
    packets = [Publish("flood", b"x", 0, False, False, 0)] * 2_000
    while not any(problem["kind"] == "publish_rate" for problem in site.problems()):
        for _ in range(5):
            client.send(*packets)


def limit_rate(site: Site) -> None:
    site.config["channels"][0]["publish_rate"] = 10
    site.write()
    site.run("reload")
    execute(site.bridge, site.problem, "disconnect")


def stay_away(number: int) -> Callable[[Site], None]:
    """A disconnected client, and publications for it."""

    def wait(site: Site) -> None:
        with RawClient.connected(site.bridge.port, "pump-7", clean=False) as pump:
            pump.subscribe(("pumps", 1))
            pump.disconnect()
        publish("pumps", number)(site)

    return wait


def with_limits(**limits: Any) -> Callable[[Site], None]:
    return lambda site: site.config.update(limits=limits)


def retain(site: Site) -> None:
    with RawClient.connected(site.bridge.port, "shop", level=5) as shop:
        for number in range(4):
            shop.publish(f"retained/{number}", bytes(1_000), 1, retain=True)


def with_one_client(site: Site) -> None:
    site.config["channels"][0]["max_clients"] = 1


def connect_too_many(site: Site) -> None:
    site.client("first")
    with RawClient(site.bridge.port, "second") as second, pytest.raises((ConnectionClosed, AssertionError)):
        assert second.connect().return_code == 0


def allow_more_clients(site: Site) -> None:
    site.config["channels"][0]["max_clients"] = 10
    site.write()
    site.run("reload")
    site.client("second")


def with_few_files(site: Site) -> None:
    site.bridge.wrapper = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh"]


def open_files(site: Site) -> None:
    while not any(problem["kind"] == "descriptors" for problem in site.problems()):
        if len(site.clients) < 80:
            client = RawClient(site.bridge.port, f"client-{len(site.clients)}")
            client.send(client.packet)
            site.clients.append(client)
        else:
            time.sleep(0.1)


def close_files(site: Site) -> None:
    for client in site.clients:
        client.socket.close()


def with_link(site: Site) -> None:
    site.broker.start()
    site.config["links"] = {"cloud": {"host": "127.0.0.1", "port": site.broker.port}}
    site.config["mappings"]["up"] = {"from": {"queue": "UP"}, "to": {"mqtt": "up", "link": "cloud"}}


def start_broker(site: Site) -> None:
    site.broker.start()
    site.run("link connect cloud")


def with_archive(site: Site) -> None:
    site.config["archive"] = {"directory": str(site.archive), "roll": {"time": "100 ms"}}


def lose_file(site: Site) -> None:
    for number in range(3):
        publish("t")(site)
        until(lambda number=number: len(archive_files(site.archive)) > number)  # type: ignore[misc]
    assert site.bridge.stop() == 0
    lost = archive_files(site.archive)[1]
    lost.rename(site.directory / lost.name)
    site.bridge.start()


def restore_file(site: Site) -> None:
    """The problem ends after an hour, and the next start finds all files."""
    directory = archive_files(site.archive)[0].parent
    for lost in site.directory.glob("*.parquet"):
        lost.rename(directory / lost.name)
    assert site.bridge.stop() == 0
    site.bridge.start()


def with_history(site: Site) -> None:
    site.config["client_history"] = {"file": str(site.directory / "clients.db")}


def replace_history(site: Site) -> None:
    """A directory in the place of the file, which root cannot write to either."""
    (site.directory / "clients.db").unlink()
    (site.directory / "clients.db").mkdir()
    site.client("pump-7")


def restore_history(site: Site) -> None:
    """The bridge writes again. The problem ends after an hour."""
    (site.directory / "clients.db").rmdir()
    site.client("pump-8")
    until(lambda: "MQB2018I" in site.bridge.log, lambda: site.bridge.log)
    assert "connected via channel OPEN" in site.run("client history pump-8")


def with_faulty_disk(site: Site) -> None:
    site.bridge.env |= {"LD_PRELOAD": str(compiled(site.directory)), "FAULTY_DISK": str(site.fault)}


def with_shifted_clock(site: Site) -> None:
    site.shift.write_bytes(struct.pack("l", 0))
    site.bridge.env |= {"LD_PRELOAD": str(compiled(site.directory, "shifted_clock")), "SHIFTED_CLOCK": str(site.shift)}


def fill_disk(site: Site) -> None:
    with RawClient.connected(site.bridge.port, "pump-7", clean=False) as pump:
        pump.subscribe(("pumps", 1))
    client = site.client("shop", level=5)
    # The bridge deletes its reserve file, and then has space for removals.
    site.fault.write_text(f"full while {site.bridge.data_directory}/queuemanager.reserve")
    for number in range(1, 20):
        client.send(Publish("pumps", bytes(100_000), 1, False, False, number))


def write_reload(text: str, status: int) -> Callable[[Site], None]:
    def reload(site: Site) -> None:
        site.write()
        with site.bridge.config.open("a", encoding="utf-8") as file:
            file.write(text)
        assert Administrator(site.bridge).run("reload").exit_code == status

    return reload


def raise_watermark(site: Site) -> None:
    site.config["limits"] = {"memory_watermark": "70%"}
    site.write()
    site.run("reload")


def execute_remedy(which: str = "") -> Callable[[Site], None]:
    return lambda site: execute(site.bridge, site.problem, which)


def disable_gets(site: Site) -> None:
    """A client acknowledges messages, which cannot be removed then."""
    client = site.client("pump-7")
    client.subscribe(("pumps", 1))
    mqsc(f"ALTER QLOCAL({TRANSMISSION_QUEUE}) GET(DISABLED)")(site)
    publish("pumps")(site)


def acknowledge_nothing(site: Site) -> None:
    client = site.client("pump-7", clean=False, keep_alive=0)
    client.subscribe(("pumps", 1))
    publish("pumps")(site)
    client.expect(Publish)


def with_exactly_once(site: Site) -> None:
    """A mapping to a broker that never completes an exchange."""
    site.fake_broker = FakeBroker("5")
    with_shifted_clock(site)
    site.config["links"] = {"cloud": {"host": "127.0.0.1", "port": site.fake_broker.port}}
    to = {"mqtt": "up", "link": "cloud"}
    site.config["mappings"]["up"] = {"from": {"queue": "UP"}, "to": to, "guarantee": "exactly-once"}


def leave_broker(site: Site) -> None:
    """Connect to another broker while a message is in flight, more than a day ago."""
    peer = site.fake_broker.connected()
    assert site.bridge.run_mq("put", "UP", "--persistent", "reading").returncode == 0
    peer.published(1, 0x04)
    site.fake_broker.close()
    site.broker.start()
    site.config["links"]["cloud"]["port"] = site.broker.port
    site.write()
    site.run("reload")
    for words in ("that the broker may have", "up: running"):
        until(lambda words=words: words in site.run("mapping show up"), lambda: site.run("mapping show up"))  # type: ignore[misc]
    site.shift.write_bytes(struct.pack("l", int(OLD_BACKLOG) + 60))


def with_pipeline(site: Site) -> None:
    site.config["queue_manager"]["data_directory"] = str(site.bridge.data_directory)
    to = {"archive": str(site.archive)}
    site.config["pipelines"] = {"rows": {"from": {"mq": {"queue": "UP"}}, "payload": "text", "to": to}}


def with_password(site: Site) -> None:
    """The queue manager accepts the password that the bridge reads from a file."""
    change_password(site, FORMER)
    write_password(site, FORMER)
    script = f"DEFINE CHANNEL({CHANNEL}) CHLTYPE(SVRCONN) TRPTYPE(TCP)\n"
    host = QueueManagerProcess(site.directory / "data", SCRIPT + script)
    host.listen(f"password_file: {site.users}", "failed_connects: 1000", port=free_port()).start()
    site.bridge = RemoteBridgeProcess(
        site.directory / "data",
        queue_manager=host,
        settings=f"  user: bridge\n  password_file: {site.directory / 'password'}\n",
        env={"MQI_STANDIN": f"127.0.0.1({host.port})"},
    )
    site.before = site.bridge.config.read_text(encoding="utf-8")


def change_password(site: Site, password: str = PRESENT) -> None:
    """Change it at the queue manager."""
    site.users.write_text(f"bridge:{password}\n")
    if site.bridge.running:
        site.bridge.mq("run", "-", stdin=f"STOP CHANNEL({CHANNEL}) MODE(FORCE)\nSTART CHANNEL({CHANNEL})\n".encode())


def write_password(site: Site, password: str = PRESENT) -> None:
    """Write it to the file of the bridge."""
    file = site.directory / "password"
    file.write_text(f"{password}\n")
    file.chmod(0o600)


def run_pipeline(site: Site) -> None:
    command = [sys.executable, "-m", "bridge", "pipeline", "run", "--config", str(site.bridge.config), "rows"]
    site.pipeline = LineProcess(command)
    # Two interpreters and Java start.
    until(
        lambda: re.search("rows +running", site.run("pipeline show rows")),
        lambda: site.run("pipeline show rows"),
        3 * PATIENCE,
    )


def kill_pipeline(site: Site) -> None:
    run_pipeline(site)
    assert site.pipeline is not None
    site.pipeline.kill()


INCIDENTS = {
    "wrong password": Incident(
        "rejections",
        f"channel PASSWORDS rejected {MANY_REJECTIONS} connections in 5 minutes, last client 'pump-7' at 127.0.0.1:",
        "MqBridgeClientsRejected",
        log_in_in_vain,
        correct_password,
        with_passwords,
        "Correct the client's password",
        ends=REJECTION_PERIOD,
    ),
    "certificate expires": Incident(
        "certificate",
        "certificate of",
        "MqBridgeCertificateExpiring",
        renew_certificate(2),
        renew_certificate(100),
        with_certificate,
        "Replace the certificate file",
    ),
    "one identifier, two programs": Incident(
        "client_identifier",
        "connections of client identifier 'pump-7' end each other",
        "MqBridgeClientIdentifierShared",
        take_over,
        use_other_identifier,
        hint="mqbridge client show pump-7",
        ends=REJECTION_PERIOD,
    ),
    "invalid payloads": Incident(
        "payloads",
        f"client 'pump-7' of channel OPEN published {MANY_INVALID} invalid payloads in 5 minutes, the last one to 'temp': the"
        " payload does not match temp.json",
        "MqBridgeInvalidPayloads",
        publish_invalid,
        correct_schema,
        with_schema,
        "mqbridge client history pump-7",
        ends=INVALID_PERIOD,
    ),
    "invalid table": Incident(
        "table",
        "the former rows of table devices stay in use: ",
        "MqBridgeTableInvalid",
        write_table("id,queue\nd7\n"),
        write_table("id,queue\nd7,TWO\n"),
        with_table,
        "Correct the file",
    ),
    "full queue": Incident(
        "queue",
        "queue FULL accepts no messages: it is full, MAXDEPTH(2)",
        "MqBridgeQueueBlocked",
        publish("orders/FULL", 3),
        mqsc("ALTER QLOCAL(FULL) MAXDEPTH(10)"),
        hint="MAXDEPTH(4)",
    ),
    "full queue of a mapping": Incident(
        "queue",
        "queue FULL accepts no messages: it is full, MAXDEPTH(2); messages of mapping orders wait for it",
        "MqBridgeQueueBlocked",
        publish("orders/FULL", 3),
        mqsc("ALTER QLOCAL(FULL) MAXDEPTH(10)"),
        hint="MAXDEPTH(4)",
    ),
    "put-disabled queue": Incident(
        "queue",
        "queue FULL accepts no messages: PUT(DISABLED)",
        "MqBridgeQueueBlocked",
        mqsc("ALTER QLOCAL(FULL) PUT(DISABLED)"),
        mqsc("ALTER QLOCAL(FULL) PUT(ENABLED)"),
        hint="PUT(ENABLED)",
    ),
    "get-disabled source": Incident(
        "mapping",
        "mapping up is stuck",
        "MqBridgeMappingStuck",
        mqsc("ALTER QLOCAL(UP) GET(DISABLED)"),
        mqsc("ALTER QLOCAL(UP) GET(ENABLED)"),
        lambda site: site.config["mappings"].update(up={"from": {"queue": "UP"}, "to": {"mqtt": "up"}}),
        "mqbridge mapping list",
    ),
    "dead letters": Incident(
        "dead_letters",
        "1 message on dead-letter queue SYSTEM.DEAD.LETTER.QUEUE",
        "MqBridgeDeadLetterQueue",
        publish("orders/NOWHERE"),
        lambda site: (mqsc("DEFINE QLOCAL(NOWHERE)")(site), site.run("dlq retry --all")),
        hint="mqbridge dlq retry --all",
    ),
    "flooding client": Incident(
        "publish_rate",
        "client 'pump-7' publishes",
        "MqBridgeClientFloods",
        flood,
        limit_rate,
        hint="Set publish_rate of its channel",
    ),
    "transmission queue nearly full": Incident(
        "backlog",
        "messages waiting on queue SYSTEM.MQTT.TRANSMIT.QUEUE",
        "MqBridgeBacklog",
        lambda site: (mqsc("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) MAXDEPTH(20)")(site), stay_away(17)(site)),
        run("client purge pump-7"),
        hint="mqbridge client purge",
    ),
    "backlog beyond waiting_bytes": Incident(
        "limit",
        "messages wait for 'pump-7'",
        "MqBridgeLimitReached",
        stay_away(20),
        run("client purge pump-7"),
        with_limits(waiting_bytes=4096),
        "mqbridge client purge CLIENT",
        others=frozenset(("dead_letters",)),
    ),
    "too many retained publications": Incident(
        "limit",
        "too many retained publications of",
        "MqBridgeLimitReached",
        retain,
        lambda site: [
            Administrator(site.bridge).does("mq", "pub", f"retained/{number}", "", "--retain") for number in range(4)
        ],
        with_limits(retained_bytes=4096),
        "mqbridge mq pub TOPIC '' --retain",
    ),
    "too many clients": Incident(
        "limit",
        "max_clients of channel OPEN is 1",
        "MqBridgeLimitReached",
        connect_too_many,
        allow_more_clients,
        with_one_client,
        "raise the option",
    ),
    "file descriptors": Incident(
        "descriptors",
        "file descriptors are in use",
        "MqBridgeFileDescriptors",
        open_files,
        close_files,
        with_few_files,
        "mqbridge channel list",
    ),
    "broker down": Incident(
        "link",
        "link cloud is not connected to 127.0.0.1:",
        "MqBridgeLinkDown",
        lambda site: site.broker.stop(),
        start_broker,
        with_link,
        "Start the broker",
    ),
    "file of the archive lost": Incident(
        "archive_files",
        "file 2 is missing",
        "MqBridgeArchiveFilesMissing",
        lose_file,
        restore_file,
        with_archive,
        "Restore the files from a copy",
        ended="MQB0012I",  # the next start
    ),
    "history of clients": Incident(
        "client_history",
        "the history of clients cannot be written: ",
        "MqBridgeClientHistory",
        replace_history,
        restore_history,
        with_history,
        "mqbridge explain MQB2017W",
        ends=None,
    ),
    "full disk": Incident(
        "disk",
        "is full: it accepts no persistent messages",
        "MqBridgeDiskFull",
        fill_disk,
        lambda site: site.fault.unlink(),
        with_faulty_disk,
        "Free space on the disk",
    ),
    "memory above the watermark": Incident(
        "memory",
        "new messages are rejected: memory use is",
        "MqBridgeMemoryAboveWatermark",
        nothing,
        raise_watermark,
        with_limits(memory_watermark=1024 * 1024),
        "give the bridge more memory",
    ),
    "jump of the clock": Incident(
        "clock",
        "the system clock was set forward by 7,200 s",
        "MqBridgeClockJump",
        lambda site: site.shift.write_bytes(struct.pack("l", 7_200)),
        nothing,
        with_shifted_clock,
        "Repair the time service",
        ends=None,
    ),
    "channel stopped": Incident(
        "channel",
        "channel OPEN",
        "MqBridgeChannelDown",
        run("channel stop OPEN"),
        run("channel start OPEN"),
        hint="mqbridge channel start OPEN",
    ),
    "mapping paused": Incident(
        "mapping",
        "mapping orders is paused",
        "",
        run("mapping pause orders"),
        run("mapping resume orders"),
        hint="mqbridge mapping resume orders",
    ),
    "reload of a file with a mistake": Incident(
        "reload",
        "reload",
        "MqBridgeReloadFailed",
        write_reload("nonsense: 1\n", 1),
        write_reload("", 0),
        hint="then run `mqbridge reload",
        ended="MQB0101I reload: ",
    ),
    "gets from the transmission queue disabled": Incident(
        "removals",
        f"the bridge can remove no messages from {TRANSMISSION_QUEUE}: GET(DISABLED)",
        "MqBridgeRemovalsStalled",
        disable_gets,
        execute_remedy("GET(ENABLED)"),
        hint="GET(ENABLED)",
        embedded=False,
    ),
    "client acknowledges nothing": Incident(
        "client",
        "client 'pump-7' acknowledged no message for 5 minutes",
        "MqBridgeClientsSilent",
        acknowledge_nothing,
        lambda site: execute(site.bridge, site.problem, "disconnect", CLIENT="pump-7"),
        hint="mqbridge client disconnect CLIENT",
        begins=ACKNOWLEDGEMENT_TIMEOUT,
    ),
    "unfinished session at a broker": Incident(
        "session",
        "mapping up: ",
        "MqBridgeSessionUnfinished",
        leave_broker,
        execute_remedy("give-up"),
        with_exactly_once,
        "mqbridge mapping give-up up",
        others=frozenset(("clock",)),
    ),
    "pipeline killed": Incident(
        "pipeline",
        "pipeline rows was killed",
        "MqBridgePipelineFails",
        kill_pipeline,
        run_pipeline,
        with_pipeline,
        "must be started again",
    ),
    "password of the bridge changed": Incident(
        "login",
        "queue manager MQB1 rejected the login of user bridge",
        "MqBridgeLoginRejected",
        change_password,
        write_password,
        with_password,
        "Write the present password to queue_manager.password_file",
        embedded=False,
    ),
    "queue manager ended": Incident(
        "queue_manager",
        "queue manager MQB1 does not answer",
        "MqBridgeQueueManagerDown",
        lambda site: site.bridge.queue_manager.kill(),
        lambda site: site.bridge.queue_manager.start(),
        hint="Start the queue manager",
        embedded=False,
    ),
}


# The checks --------------------------------------------------------------------------------------------------------------


def fires(alert: str, scrape: Scrape, directory: Path) -> bool:
    """Return whether the expression of an alert is true if all scrapes are like this one."""
    series = [
        {
            "series": name
            + "{"
            + ",".join(f"{label}={json.dumps(value)}" for label, value in {**dict(labels), **TARGET}.items())
            + "}",
            "values": f"{value:.17g}x30",
        }
        for (name, labels), value in scrape.values.items()
        if name.startswith("mqbridge_") and not name.endswith(("_bucket", "_created"))
    ]
    # Prometheus' clock starts at 0.
    expression = ALERTS[alert]["expr"].replace("time()", f"{time.time():.0f}")
    case = {"expr": f"count({expression}) > bool 0", "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 1}]}
    file = directory / "alert.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [case]}]}))
    try:
        promtool("test", "rules", file)
    except AssertionError as error:
        assert "expr:" in str(error), error
        return False
    return True


#: The labels that Prometheus adds.
TARGET = {"job": "mqbridge", "instance": "b1"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    incident_site = Site(tmp_path)
    yield incident_site
    incident_site.discard()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident(site: Site, name: str) -> None:
    """All outputs report it with a hint, its alert fires, and it ends with its remedy."""
    incident = INCIDENTS[name]
    if not incident.embedded:
        built("the stand-in for IBM MQ", CLIENT_PACKAGES / "versions")
    site.prepare(incident)
    site.bridge.start()
    if incident.cause is not nothing:
        assert not any(problem["kind"] == incident.kind for problem in site.problems())
        assert not incident.alert or not fires(incident.alert, Scrape(site.bridge), site.directory)
    incident.cause(site)

    def listed() -> list[dict[str, Any]]:
        problems = site.problems()
        return [
            problem for problem in problems if problem["kind"] == incident.kind and incident.what in problem["what"]
        ]

    until(listed, lambda: f"{site.problems()}\n{site.bridge.log}", PATIENCE + incident.begins)
    (site.problem,) = listed()
    assert incident.hint in site.problem["remedy"] + site.problem["command"]
    # Problems with one cause are one entry.
    assert {problem["kind"] for problem in site.problems()} <= {incident.kind, *incident.others}, site.problems()
    report_everywhere(site, incident)
    incident.remedy(site)
    if incident.ends is not None:
        until(lambda: not listed(), lambda: str(site.problems()), PATIENCE + incident.ends)
        until(lambda: incident.ended in site.bridge.log, lambda: site.bridge.log)
        until(lambda: Scrape(site.bridge).get("mqbridge_problem", kind=incident.kind) == 0)
        assert not incident.alert or not fires(incident.alert, Scrape(site.bridge), site.directory)
    for client in site.clients:
        client.socket.close()
    assert site.bridge.stop() == 0
    assert "Traceback" not in site.bridge.log


def report_everywhere(site: Site, incident: Incident) -> None:
    """The command, the console, the metric, the alert and the log agree."""
    status = Administrator(site.bridge).run("status")
    assert status.exit_code == 1
    assert incident.what in status.stdout
    assert incident.hint in " ".join(status.stdout.split())
    page = Console(site.bridge).log_in(TOKEN).get("/").text
    assert incident.what in page
    assert incident.hint.replace("`", "") in page
    scrape = Scrape(site.bridge)
    assert (scrape.get("mqbridge_problem", kind=incident.kind) or 0) >= 1
    assert not incident.alert or fires(incident.alert, scrape, site.directory)
    until(lambda: incident.what in site.bridge.log, lambda: site.bridge.log)


def test_the_table_has_the_documented_incidents() -> None:
    """The table contains those of the documentation."""
    table = Path("docs/how-to/operations.md").read_text(encoding="utf-8").partition("| incident | kind |")[2]
    documented = {
        word.strip("`")
        for line in table.partition("\n\n")[0].splitlines()[2:]
        for word in line.split("|")[2].replace(",", " ").split()
        if word.startswith("`")
    }
    assert documented - {incident.kind for incident in INCIDENTS.values()} == set()
    assert len(INCIDENTS) >= 20
