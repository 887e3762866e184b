"""`mqbridge check --connect`, and `mqbridge mq` with a queue manager from a configuration file."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import connections
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.parameters import ConnectionParameters
from tests.helpers.patience import PATIENCE
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.pcf.command_server import CommandServer

XMITQ, DLQ = "SYSTEM.MQTT.TRANSMIT.QUEUE", "SYSTEM.DEAD.LETTER.QUEUE"
IBM = "queue_manager: {type: ibm, name: QM1, channel: C, connections: mq1(1414), user: ours}\n"


@pytest.fixture
def config(tmp_path: Path, queue_manager: Any) -> Path:
    """A configuration file of the running queue manager."""
    return file(tmp_path, f"queue_manager: {{name: QM1, data_directory: {queue_manager.directory}}}\n")


def file(directory: Path, text: str) -> Path:
    path = directory / "bridge.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def altered(queue_manager: Any) -> Iterator[Any]:
    """Run commands that are undone at the end: `altered("ALTER ...", "ALTER ...")`."""
    opposites: list[str] = []

    def run(command: str) -> None:
        (response,) = queue_manager.connection.command(command)
        assert response.ok, response.message

    def call(command: str, opposite: str) -> None:
        run(command)
        opposites.append(opposite)

    yield call
    for opposite in reversed(opposites):
        run(opposite)


def test_a_bridge_with_all_requirements_has_no_findings(invoke: Any, config: Path) -> None:
    result = invoke("check", "--connect", config)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "queue_manager:" and "  name: QM1" in lines
    assert lines[-2:] == ["queue manager QM1 meets all requirements of the bridge", f"{config} is OK"]


@pytest.mark.parametrize(
    ("command", "opposite", "sentence"),
    [
        (
            f"DELETE QLOCAL({DLQ})",
            f"DEFINE QLOCAL({DLQ}) MAXDEPTH(10000000) MAXMSGL(104857600) DEFPSIST(YES)",
            f"dead-letter queue {DLQ} is not defined:"
            f" DEFINE QLOCAL('{DLQ}') USAGE(NORMAL) MAXDEPTH(10000000) MAXMSGL(104857600) DEFPSIST(YES) MONQ(LOW)",
        ),
        (
            f"ALTER QLOCAL({XMITQ}) USAGE(NORMAL)",
            f"ALTER QLOCAL({XMITQ}) USAGE(XMITQ)",
            f"transmission queue {XMITQ} has not USAGE(XMITQ): ALTER QLOCAL('{XMITQ}') USAGE(XMITQ)",
        ),
        (
            "ALTER QMGR DEFXMITQ(' ')",
            f"ALTER QMGR DEFXMITQ({XMITQ})",
            f"the queue manager's default transmission queue (DEFXMITQ) is blank, and has to be {XMITQ}, through which"
            f" messages reach MQTT clients: ALTER QMGR DEFXMITQ('{XMITQ}')",
        ),
    ],
    ids=["deleted", "usage", "DEFXMITQ"],
)
def test_missing_objects_are_reported(
    invoke: Any, config: Path, altered: Any, command: str, opposite: str, sentence: str
) -> None:
    altered(command, opposite)
    result = invoke("check", "--connect", config)
    assert (result.exit_code, result.stderr.splitlines()[:-1]) == (1, [sentence])
    assert result.stderr.splitlines()[-1] == f"mqbridge: error: {config} is valid, but 1 requirement not met"
    assert "is OK" not in result.stdout
    # Without --connect, only the file is checked.
    assert invoke("check", config).exit_code == 0


def test_another_transmission_queue_is_checked(invoke: Any, config: Path) -> None:
    config.write_text(config.read_text() + "transmission_queue: XMIT\n")
    result = invoke("check", "--connect", config)
    assert result.exit_code == 1
    assert [line.rpartition(": ")[2] for line in result.stderr.splitlines()[:-1]] == [
        "ALTER QMGR DEFXMITQ('XMIT')",
        "DEFINE QLOCAL('XMIT') USAGE(XMITQ) SHARE MAXDEPTH(10000000) MAXMSGL(104857600) MONQ(LOW)",
    ]


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        (
            "from: {mqtt: a}, to: {queue: NOWHERE}",
            "queue NOWHERE is not defined, and is needed to put messages (mapping m): DEFINE QLOCAL('NOWHERE')",
        ),
        (
            "from: {queue: NOWHERE}, to: {mqtt: a}",
            "queue NOWHERE is not defined, and is needed to inquire its attributes (mapping m): DEFINE QLOCAL('NOWHERE')",
        ),
        ("from: {mqtt: '{a}'}, to: {queue: 'Q.{a}'}", ""),
        ("from: {mqtt: a}, to: {queue: NOWHERE, queue_manager: QM2}", ""),
        ("from: {mqtt: a}, to: {queue: NOWHERE}, enabled: false", ""),
        (f"from: {{mqtt: a}}, to: {{queue: {DLQ}}}", ""),
    ],
)
def test_queues_of_mappings_are_checked(invoke: Any, config: Path, mapping: str, sentence: str) -> None:
    config.write_text(f"{config.read_text()}mappings: {{m: {{{mapping}}}}}\n")
    result = invoke("check", "--connect", config)
    assert (result.exit_code, "\n".join(result.stderr.splitlines()[:-1])) == (1 if sentence else 0, sentence)


def test_an_unreachable_broker_is_reported(invoke: Any, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        mappings = "mappings: {m: {from: {mqtt: a, link: l}, to: {topic: b}}}\n"
        config.write_text(f"{config.read_text()}links: {{l: {{host: 127.0.0.1, port: {port}}}}}\n{mappings}")
        assert invoke("check", "--connect", config).exit_code == 0
    result = invoke("check", "--connect", config)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"link l: no connection to the broker at 127.0.0.1:{port}: ")
    assert "refused" in result.stderr
    assert invoke("check", config).exit_code == 0


def test_a_broker_that_never_answers_is_reported(invoke: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TIMEOUT", 0.2)
    monkeypatch.setattr(connections, "PROBE_TIMEOUT", 0.2)
    monkeypatch.setattr(connections, "lacking_at_queue_manager", lambda _configuration: ([], []))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        mappings = "mappings: {m: {from: {mqtt: a, link: l}, to: {topic: b}}}\n"
        config.write_text(f"{config.read_text()}links: {{l: {{host: 127.0.0.1, port: {port}, tls: {{}}}}}}\n{mappings}")
        result = invoke("check", "--connect", config)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"link l: the broker at 127.0.0.1:{port} did not answer in time\n")


def test_the_command_does_not_need_a_running_bridge(invoke: Any, tmp_path: Path) -> None:
    result = invoke("check", "--connect", file(tmp_path, "queue_manager: {data_directory: nothing}"))
    assert result.exit_code == 1
    assert result.stderr.startswith("MQRC_Q_MGR_NOT_AVAILABLE (2059): no bridge answers at ")
    assert "is OK" not in result.stdout


def test_no_connection_is_made_for_a_file_with_mistakes(invoke: Any, tmp_path: Path) -> None:
    result = invoke("check", "--connect", file(tmp_path, "queue_manager: {nmae: A}"))
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_script_of_a_configuration_grants_authorities_to_the_named_user_or_group(
    invoke: Any, tmp_path: Path
) -> None:
    path = file(tmp_path, IBM)
    by_default, to_user = (
        invoke("mqsc-script", "--config", path),
        invoke("mqsc-script", "--config", path, "--user", "ours"),
    )
    assert (by_default.exit_code, to_user.exit_code) == (0, 0)
    assert "DEFINE CHANNEL('C') CHLTYPE(SVRCONN)" in by_default.stdout
    assert by_default.stdout.replace("GROUP('mqbridge')", "PRINCIPAL('ours')") == to_user.stdout
    both = invoke("mqsc-script", "--user", "ours", "--group", "ours")
    assert (both.exit_code, both.stdout) == (2, "")


# IBM MQ --------------------------------------------------------------------------------------------------------------


class FakeIbm:
    """Connections to the stand-in for IBM MQ in this process. They record their parameters."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self.parameters: list[ConnectionParameters] = []

    def __call__(self, library: Any, parameters: ConnectionParameters) -> StandInConnection:
        self.parameters.append(parameters)
        return StandInConnection(self._queue_manager)


@pytest.fixture
def ibm(queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIbm]:
    fake = FakeIbm(queue_manager.itself)
    command_server = CommandServer(queue_manager.itself)
    command_server.start()
    monkeypatch.setattr("bridge.mq.ibm.connection.connect_ibm", fake)
    monkeypatch.setitem(sys.modules, "ibmmq", types.ModuleType("ibmmq"))
    monkeypatch.setenv("MQBRIDGE_PASSWORD", "hunter2")
    yield fake
    command_server.stop()


def test_check_of_ibm_mq(invoke: Any, ibm: FakeIbm, tmp_path: Path) -> None:
    path = file(tmp_path, IBM)
    result = invoke("check", "--connect", path)
    # The default MAXMSGL is the length of the longest packet, and messages have headers.
    assert result.exit_code == 0
    assert result.stderr.startswith("note: the queue manager has MAXMSGL(4194304), and clients may publish messages of")
    assert "queue manager QM1 meets all requirements of the bridge, except for the notes" in result.stdout
    assert ibm.parameters == [
        ConnectionParameters(queue_manager="QM1", channel="C", connections="mq1(1414)", user="ours", password="hunter2")
    ]
    assert "hunter2" not in result.output


def test_a_queue_manager_that_hangs_after_it_has_accepted_the_connection(
    invoke: Any, ibm: FakeIbm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time starts at its last answer."""
    answers, hung, goes_on = itertools.count(), threading.Event(), threading.Event()
    inquire = StandInConnection.inquire

    def hangs(*arguments: Any) -> Any:
        if next(answers) > 3:
            hung.set()
            goes_on.wait(PATIENCE)
        return inquire(*arguments)

    monkeypatch.setattr(StandInConnection, "inquire", hangs)
    monkeypatch.setattr(connections, "TIMEOUT", 0.3)
    try:
        result = invoke("check", "--connect", file(tmp_path, IBM))
    finally:
        goes_on.set()
        for thread in threading.enumerate():
            if thread.name == "examination":
                thread.join(PATIENCE)
    assert (result.exit_code, hung.is_set()) == (1, True)
    assert result.stderr.splitlines()[0] == (
        "connected, but no answer from queue manager QM1 within 0.3 s: the queue manager, its machine or the network hangs"
    )


def test_the_script_warns_before_it_diverts_the_routes_of_a_queue_manager(
    invoke: Any, ibm: FakeIbm, altered: Any, tmp_path: Path
) -> None:
    path = file(tmp_path, IBM)
    unseen = invoke("mqsc-script", "--config", path)
    assert unseen.stderr.startswith("warning: the script sets DEFXMITQ of queue manager QM1.") and ibm.parameters == []
    sets, alias = f"\nALTER QMGR DEFXMITQ('{XMITQ}')\n", "\nDEFINE QREMOTE('mqbridge.check') NOREPLACE"
    assert sets in unseen.stdout and alias not in unseen.stdout
    result = invoke("mqsc-script", "--connect", "--config", path)
    assert (result.exit_code, result.stderr, sets in result.stdout) == (0, "", True)
    altered("DEFINE QLOCAL(HUB) USAGE(XMITQ)", "DELETE QLOCAL(HUB)")
    altered("ALTER QMGR DEFXMITQ(HUB)", f"ALTER QMGR DEFXMITQ({XMITQ})")
    for options, warning in (
        (
            ["--connect"],
            "warning: DEFXMITQ of queue manager QM1 is HUB, which routes messages to other queue managers.",
        ),
        (["--connect", "--aliases"], ""),
        (["--aliases"], ""),
    ):
        unchanged_routes = invoke("mqsc-script", *options, "--config", path)
        assert (unchanged_routes.exit_code, unchanged_routes.stderr.partition(" The script")[0]) == (0, warning)
        assert sets not in unchanged_routes.stdout and alias in unchanged_routes.stdout
    embedded = invoke("mqsc-script", "--connect")
    assert (embedded.exit_code, embedded.stdout) == (2, "")


def test_check_notes_a_channel_whose_clients_log_in_at_the_queue_manager(invoke: Any, tmp_path: Path) -> None:
    channels = "channels: [{name: DEVICES, authentication: [{method: queue-manager}]}]\n"
    result = invoke("check", file(tmp_path, IBM + channels))
    assert (
        "note: channel DEVICES: method queue-manager connects to the queue manager for each login, two at a time; each user"
        " of a client needs CONNECT authority, and CONNAUTH must check passwords\n"
    ) in result.stdout


@pytest.mark.parametrize("by_variable", [False, True], ids=["--config", "MQBRIDGE_CONFIG"])
def test_commands_for_applications_connect_to_ibm_mq(
    invoke: Any, ibm: FakeIbm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    path = file(tmp_path, IBM)
    if by_variable:
        monkeypatch.setenv("MQBRIDGE_CONFIG", str(path))
    result = invoke("mqsc", "display", "QMGR", *([] if by_variable else ["--config", path]))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "QMNAME(QM1)" in result.stdout
    assert [connection.queue_manager for connection in ibm.parameters] == ["QM1"]


def test_a_data_directory_is_sufficient(
    invoke: Any, queue_manager: Any, ibm: FakeIbm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQBRIDGE_CONFIG", str(file(tmp_path, IBM)))
    assert invoke("mqsc", "display", "QMGR", "--data-dir", queue_manager.directory).exit_code == 0
    assert ibm.parameters == []


def test_a_file_with_mistakes_in_the_environment_is_reported(
    invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQBRIDGE_CONFIG", str(file(tmp_path, "limts: {}\n")))
    result = invoke("mqsc", "display", "QMGR")
    assert result.exit_code == 2
    assert "limts" in result.stderr
    assert "MQBRIDGE_CONFIG names this file. With --data-dir DIR, it is not read" in result.stderr


@pytest.mark.parametrize("mistake", ["limts: {}", "channels: [", "mappings: {a: {from: nonsense}}"])
@pytest.mark.parametrize("words", [("mqsc", "display", "QMGR"), ("dlq", "list")])
def test_commands_reach_the_queue_manager_with_a_faulty_configuration_file(
    invoke: Any, queue_manager: Any, tmp_path: Path, mistake: str, words: tuple[str, ...]
) -> None:
    path = file(tmp_path, f"{mistake}\nqueue_manager:\n  data_directory: {queue_manager.directory}\n")
    result = invoke(*words, "--config", path)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {path} has mistakes")


def test_a_retry_needs_the_mappings_of_the_file_and_rejects_a_faulty_one(
    invoke: Any, queue_manager: Any, tmp_path: Path
) -> None:
    path = file(tmp_path, f"limts: {{}}\nqueue_manager:\n  data_directory: {queue_manager.directory}\n")
    result = invoke("dlq", "retry", "--all", "--config", path)
    assert result.exit_code == 2 and "limts" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["mqsc", "display", "QMGR", "--config", "{config}", "--data-dir", "d"], ["run", "{config}", "--data-dir", "d"]],
    ids=["mqsc", "run"],
)
def test_ibm_mq_does_not_have_a_data_directory(invoke: Any, ibm: FakeIbm, tmp_path: Path, arguments: list[str]) -> None:
    path = file(tmp_path, IBM)
    result = invoke(*(argument.format(config=path) for argument in arguments))
    assert (result.exit_code, result.stdout, ibm.parameters) == (2, "", [])
    assert result.stderr.startswith("mqbridge: error: --data-dir d: ")


def test_a_missing_password_is_reported(
    invoke: Any, ibm: FakeIbm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MQBRIDGE_PASSWORD")
    result = invoke("check", "--connect", file(tmp_path, IBM))
    assert (result.exit_code, ibm.parameters) == (1, [])
    assert "no password for user ours: password_file is not set" in result.stderr


def test_a_missing_package_is_reported(invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ibmmq", "pymqi"):
        monkeypatch.setitem(sys.modules, name, None)
    result = invoke("check", "--connect", file(tmp_path, IBM))
    assert result.exit_code == 1
    assert result.stderr.startswith("IBM MQ is reached through ibmmq or pymqi and IBM's client library")


def test_a_connection_that_ibm_mq_rejects_is_reported(
    invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MQMIError(Exception):
        comp, reason = 2, 2035

    class QueueManager:
        def __init__(self, name: str | None) -> None:
            pass

        def connect_with_options(self, *arguments: Any, **options: Any) -> None:
            raise MQMIError

    library = types.ModuleType("pymqi")
    library.__dict__.update(MQMIError=MQMIError, QueueManager=QueueManager, CD=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "ibmmq", None)
    monkeypatch.setitem(sys.modules, "pymqi", library)
    monkeypatch.setenv("MQBRIDGE_PASSWORD", "hunter2")
    result = invoke("check", "--connect", file(tmp_path, IBM))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "no connection to queue manager QM1: MQRC_NOT_AUTHORIZED (2035): connect to queue manager QM1 at mq1(1414),"
        " channel C; hint: check the password of user ours, CONNAUTH, CHLAUTH, and the user's authority to connect:"
        " SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ours') AUTHADD(CONNECT,INQ)\n"
    )
