"""DEFINE, ALTER, DELETE, START, STOP, PURGE and DISPLAY CHANNEL CHLTYPE(MQTT), and DISPLAY CHSTATUS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config.channel import ChannelConfig
from bridge.mq.embedded.channels import restore_channel
from bridge.mq.embedded.mqsc import display as channel_display
from tests.helpers.embedded_manager import Manager
from tests.helpers.running_channels import Running, client

BY_DEFAULT = {
    "CHANNEL": "C",
    "CHLTYPE": "MQTT",
    "BACKLOG": 4096,
    "DESCR": "",
    "LOCLADDR": "",
    "MCAUSER": "",
    "PORT": 1883,
    "PROTOCOL": "MQTTV5,MQTTV311,MQTTV3",
    "SSLCAUTH": "NEVER",
    "SSLCIPH": "",
    "SSLKEYP": "",
    "SSLKEYR": "",
    "TRPTYPE": "TCP",
    "USECLTID": "NO",
}
PEM = "/etc/mqbridge/server.pem"

#: Words of DEFINE CHANNEL, the part that DISPLAY shows, and the channel of the bridge that results.
DEFINED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("", {}, {}),
    ("PORT(0) BACKLOG(7)", {"PORT": 0, "BACKLOG": 7}, {"port": 0, "backlog": 7}),
    ("LOCLADDR('127.0.0.2')", {"LOCLADDR": "127.0.0.2"}, {"address": "127.0.0.2"}),
    ("LOCLADDR('')", {}, {}),
    ("MCAUSER('plant')", {"MCAUSER": "plant"}, {"mcauser": "plant"}),
    ("USECLTID(YES)", {"USECLTID": "YES"}, {"use_client_id": True}),
    ("TRPTYPE(TCP) JAASCFG(' ')", {}, {}),
    ("DESCR('of the plant')", {"DESCR": "of the plant"}, {}),
    ("PROTOCOL(MQTTV3,MQTTV311)", {"PROTOCOL": "MQTTV311,MQTTV3"}, {"protocols": ["MQTTV311", "MQTTV3"]}),
    ("PROTOCOL(HTTP)", {"PROTOCOL": "HTTP"}, {"websocket": {}}),
    (f"SSLKEYR('{PEM}')", {"SSLKEYR": PEM}, {"tls": {"certificate_file": PEM}}),
    (
        f"SSLKEYR('{PEM}') SSLKEYP('/etc/mqbridge/password') SSLCIPH(ANY_TLS13)",
        {"SSLKEYR": PEM, "SSLKEYP": "/etc/mqbridge/password", "SSLCIPH": "ANY_TLS13"},
        {"tls": {"certificate_file": PEM, "key_password_file": "/etc/mqbridge/password", "ciphers": "ANY_TLS13"}},
    ),
    (
        f"SSLKEYR('{PEM}') SSLCAUTH(OPTIONAL)",
        {"SSLKEYR": PEM, "SSLCAUTH": "OPTIONAL"},
        {"tls": {"certificate_file": PEM, "client_certificates": "optional", "ca_file": "/etc/mqbridge/server.ca.pem"}},
    ),
    (
        f"SSLKEYR('{PEM}') SSLCAUTH(REQUIRED) LOCLADDR('0.0.0.0')",
        {"SSLKEYR": PEM, "SSLCAUTH": "REQUIRED", "LOCLADDR": "0.0.0.0"},
        {
            "address": "0.0.0.0",
            "authentication": [{"method": "certificate"}],
            "tls": {
                "certificate_file": PEM,
                "client_certificates": "required",
                "ca_file": "/etc/mqbridge/server.ca.pem",
            },
        },
    ),
]

#: Rejected commands, the AMQ message, and its text.
REFUSED = [
    ("DEFINE CHANNEL(C)", "AMQ8405I", "CHLTYPE(MQTT)"),
    ("DEFINE CHANNEL(C) CHLTYPE(SDR)", "AMQ8405I", "CHLTYPE(SVRCONN)"),
    ("DEFINE CHANNEL CHLTYPE(MQTT)", "AMQ8405I", "a name in parentheses"),
    ("DEFINE CHANNEL('A B') CHLTYPE(MQTT)", "AMQ8424E", "' '"),
    ("DEFINE CHANNEL(ABCDEFGHIJKLMNOPQRSTU) CHLTYPE(MQTT)", "AMQ8424E", "1 to 20 characters"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) PORT(65536)", "AMQ8405I", "PORT must be a number from 0 to 65535"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) BACKLOG(0)", "AMQ8405I", "BACKLOG must be a number from 1"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) PORT", "AMQ8405I", "PORT requires one value"),
    (
        "DEFINE CHANNEL(C) CHLTYPE(MQTT) LOCLADDR('0.0.0.0')",
        "AMQ8405I",
        "a loopback address (127.0.0.1, ::1 or localhost)",
    ),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) LOCLADDR('no host')", "AMQ8405I", "expected"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) PROTOCOL(AMQP)", "AMQ8405I", "PROTOCOL must be one or more of MQTTV5"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) PROTOCOL(MQTTV3,MQTTV3)", "AMQ8405I", "PROTOCOL must be one or more of MQTTV5"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) PROTOCOL(MQTTV311,HTTP)", "AMQ8405I", "PROTOCOL(HTTP) excludes other protocols"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) MCAUSER('has blanks')", "AMQ8405I", "without blanks"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) MCAUSER('thirteen.char')", "AMQ8405I", "has 13 characters, the maximum is 12"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) JAASCFG('MQXRConfig')", "AMQ8101E", "JAAS is not supported"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) SSLCAUTH(REQUIRED)", "AMQ8405I", "SSLCAUTH requires SSLKEYR"),
    (
        f"DEFINE CHANNEL(C) CHLTYPE(MQTT) SSLKEYR('{PEM}') SSLKEYP('pa55word')",
        "AMQ8405I",
        "SSLKEYP must be the path of a file",
    ),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) XMITQ(X)", "AMQ8405I", "XMITQ"),
    ("DEFINE CHANNEL(C) CHLTYPE(MQTT) LIKE(NONE)", "AMQ8147E", "Channel NONE not found"),
    ("DEFINE CHANNEL(OLD) CHLTYPE(MQTT)", "AMQ8150E", "already exists"),
    ("DEFINE CHANNEL(FILE) CHLTYPE(MQTT) REPLACE", "AMQ8101E", "configuration file defines channel FILE"),
    ("ALTER CHANNEL(FILE) CHLTYPE(MQTT) PORT(1)", "AMQ8101E", "configuration file defines channel FILE"),
    ("ALTER CHANNEL(NONE) CHLTYPE(MQTT) PORT(1)", "AMQ8147E", "not found"),
    ("ALTER CHANNEL(OLD) CHLTYPE(MQTT) LIKE(OLD)", "AMQ8405I", "LIKE"),
    ("DELETE CHANNEL(FILE) CHLTYPE(MQTT)", "AMQ8101E", "configuration file defines channel FILE"),
    ("DELETE CHANNEL(NONE) CHLTYPE(MQTT)", "AMQ8147E", "not found"),
    ("DELETE CHANNEL(OLD) CHLTYPE(MQTT) PURGE", "AMQ8405I", "PURGE"),
    ("START CHANNEL(NONE) CHLTYPE(MQTT)", "AMQ8147E", "not found"),
    ("START CHANNEL(OLD)", "AMQ8405I", "CHLTYPE(MQTT)"),
    ("STOP CHANNEL(OLD) CHLTYPE(MQTT)", "AMQ9533W", "no telemetry service"),
    ("STOP CHANNEL(OLD) CHLTYPE(MQTT) MODE(FORCE)", "AMQ8405I", "MODE"),
    ("STOP CHANNEL(OLD) CHLTYPE(MQTT) CLIENTID", "AMQ8405I", "CLIENTID requires"),
    ("PURGE CHANNEL(NONE) CHLTYPE(MQTT)", "AMQ8147E", "not found"),
    ("DISPLAY CHANNEL(NONE)", "AMQ8147E", "not found"),
    ("DISPLAY CHANNEL(*) CHLTYPE(SDR)", "AMQ8405I", "CHLTYPE(SVRCONN)"),
    ("DISPLAY CHANNEL(*) XMITQ", "AMQ8405I", "XMITQ is not an attribute"),
    ("DISPLAY CHSTATUS(*) CHLTYPE(MQTT)", "AMQ8420I", "not found"),
    ("DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID(*) SUMMARY", "AMQ8405I", "exclude each other"),
    ("DISPLAY CHSTATUS(*) CHLTYPE(MQTT) MSGSNT", "AMQ8405I", "MSGSNT is not an attribute"),
    ("DISPLAY CHSTATUS CHLTYPE(MQTT)", "AMQ8405I", "a name in parentheses"),
]


def display(manager: Manager, command: str) -> list[dict[str, str | int]]:
    return manager.ok(command).objects


def configured(manager: Manager, name: str = "C") -> ChannelConfig:
    return manager.itself.objects.telemetry_channels.defined[name].config


@pytest.mark.parametrize(("words", "attributes", "config"), DEFINED, ids=[case[0] for case in DEFINED])
def test_a_definition_is_displayed_and_survives_a_restart(
    manager: Manager, words: str, attributes: dict[str, Any], config: dict[str, Any]
) -> None:
    """It is displayed, creates a channel of the bridge, and survives a restart."""
    answer = manager.ok(f"DEFINE CHANNEL(C) CHLTYPE(MQTT) {words}").message
    assert answer.startswith("AMQ8014I: Channel C created. It is stopped")
    expected = ChannelConfig.model_validate({"name": "C", **config})
    for _ in range(2):
        assert display(manager, "DISPLAY CHANNEL(C) CHLTYPE(MQTT)") == [BY_DEFAULT | attributes]
        assert configured(manager) == expected
        manager.restart()


@pytest.mark.parametrize(("command", "number", "words"), REFUSED, ids=[case[0] for case in REFUSED])
def test_rejected_commands_change_nothing(manager: Manager, command: str, number: str, words: str) -> None:
    manager.ok("DEFINE CHANNEL(OLD) CHLTYPE(MQTT)")
    manager.itself.objects.telemetry_channels.use_file([ChannelConfig(name="FILE")])
    before = display(manager, "DISPLAY CHANNEL(*) ALL")
    assert words in manager.refused(command, number)
    assert display(manager, "DISPLAY CHANNEL(*) ALL") == before


def test_define_like_replace_alter_and_delete(manager: Manager) -> None:
    manager.ok("DEFINE CHANNEL(A) CHLTYPE(MQTT) PORT(1) MCAUSER('one')")
    manager.ok("DEFINE CHANNEL(B) CHLTYPE(MQTT) LIKE(A) PORT(2)")
    assert display(manager, "DISPLAY CHANNEL(B) PORT MCAUSER") == [
        {"CHANNEL": "B", "CHLTYPE": "MQTT", "PORT": 2, "MCAUSER": "one"}
    ]
    assert manager.ok("DEFINE CHANNEL(B) CHLTYPE(MQTT) REPLACE PORT(3)").message == "AMQ8016I: Channel B changed."
    assert (configured(manager, "B").port, configured(manager, "B").mcauser) == (3, None)
    assert manager.ok("ALTER CHANNEL(B) CHLTYPE(MQTT) MCAUSER('two')").message == "AMQ8016I: Channel B changed."
    assert (configured(manager, "B").port, configured(manager, "B").mcauser) == (3, "two")
    assert manager.ok("DELETE CHANNEL(A) CHLTYPE(MQTT)").message == "AMQ8015I: Channel A deleted."
    manager.restart()
    assert [row["CHANNEL"] for row in display(manager, "DISPLAY CHANNEL(*)")] == ["B"]


def test_synonyms_and_filters_are_accepted(manager: Manager) -> None:
    manager.ok("DEF CHL(A1) CHLTYPE(MQTT) PORT(1)")
    manager.ok("DEF CHL(A2) CHLTYPE(MQTT) PORT(2)")
    manager.ok("DEF CHL(B) CHLTYPE(MQTT) PORT(3)")
    assert display(manager, "DIS CHL(A*) CHLTYPE(MQTT)") == [
        {"CHANNEL": "A1", "CHLTYPE": "MQTT"},
        {"CHANNEL": "A2", "CHLTYPE": "MQTT"},
    ]
    assert display(manager, "DIS CHL(*) CHLTYPE(MQTT) WHERE(PORT GT 1)") == [
        {"CHANNEL": "A2", "CHLTYPE": "MQTT", "PORT": 2},
        {"CHANNEL": "B", "CHLTYPE": "MQTT", "PORT": 3},
    ]


def test_the_channel_of_the_file_overrides_a_definition(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    manager.ok("DEFINE CHANNEL(C) CHLTYPE(MQTT) PORT(1)")
    register = manager.itself.objects.telemetry_channels
    register.use_file([ChannelConfig(name="C", port=2, use_client_id=True), ChannelConfig(name="F", websocket={})])
    assert (
        "channel C is defined in the configuration file and by a command; using the definition in the file"
        in caplog.text
    )
    assert [(channel.name, channel.port) for channel in register.channels] == [("C", 2), ("F", 1883)]
    assert [(row["PORT"], row["PROTOCOL"]) for row in display(manager, "DISPLAY CHANNEL(*) ALL")] == [
        (2, "MQTTV5,MQTTV311,MQTTV3"),
        (1883, "HTTP"),
    ]
    # A definition by a command can be deleted, and applies again if the file has no channel of that name.
    register.use_file([])
    assert [(channel.name, channel.port) for channel in register.channels] == [("C", 1)]
    register.use_file([ChannelConfig(name="C", port=2)])
    manager.ok("DELETE CHANNEL(C) CHLTYPE(MQTT)")
    register.use_file([])
    assert register.channels == []


def test_a_definition_that_is_no_longer_valid_is_reported(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    """Another version of the bridge may have accepted it. The queue manager starts nevertheless."""
    restore_channel(manager.itself.objects.telemetry_channels, "C", {"LOCLADDR": "0.0.0.0"})
    assert "restoring channel C failed: expected a loopback address" in caplog.text
    assert manager.itself.objects.telemetry_channels.defined == {}


def test_a_script_that_starts_a_channel_runs_before_there_is_a_service(manager: Manager) -> None:
    manager.ok("DEFINE CHANNEL(C) CHLTYPE(MQTT)")
    assert manager.ok("START CHANNEL(C) CHLTYPE(MQTT)").message == (
        "AMQ8018I: Start channel C accepted. It starts with the telemetry service."
    )


# Running channels -------------------------------------------------------------------------------------------------------


@pytest.fixture
def running(manager: Manager) -> Running:
    """Channel A, which runs, and channel B, which is stopped."""
    manager.ok("DEFINE CHANNEL(A) CHLTYPE(MQTT)")
    manager.ok("DEFINE CHANNEL(B) CHLTYPE(MQTT)")
    manager.itself.objects.telemetry_channels.running = running_channels = Running()
    return running_channels


ASKED = [
    ("START CHANNEL(B) CHLTYPE(MQTT)", "AMQ8018I: Start channel B accepted.", [("start", "B")]),
    ("STOP CHANNEL(A) CHLTYPE(MQTT)", "AMQ8019I: Stop channel A accepted.", [("stop", "A", None)]),
    ("STOP CHL(A) CHLTYPE(MQTT) CLIENTID('pump-1')", "AMQ8019I: Stop channel A accepted.", [("stop", "A", "pump-1")]),
    ("PURGE CHANNEL(A) CHLTYPE(MQTT)", "AMQ8019I: Purge channel A accepted.", [("purge", "A", None)]),
    (
        "PURGE CHL(A) CHLTYPE(MQTT) CLIENTID('pump-2')",
        "AMQ8019I: Purge channel A accepted.",
        [("purge", "A", "pump-2")],
    ),
    ("ALTER CHANNEL(A) CHLTYPE(MQTT) PORT(7)", "AMQ8016I: Channel A changed.", ["changed"]),
    ("ALTER CHANNEL(A) CHLTYPE(MQTT) PORT(1883)", "AMQ8016I: Channel A changed.", []),
    ("DELETE CHANNEL(B) CHLTYPE(MQTT)", "AMQ8015I: Channel B deleted.", ["changed"]),
    ("START CHANNEL(A) CHLTYPE(MQTT)", "AMQ9514E: Channel A is in use: it is running already.", []),
    ("STOP CHANNEL(B) CHLTYPE(MQTT)", "AMQ9533W: Channel B is not active: it is stopped already.", []),
    (
        "STOP CHANNEL(A) CHLTYPE(MQTT) CLIENTID('pump-2')",
        "AMQ9533W: Channel A is not active: client 'pump-2' is not",
        [],
    ),
    (
        "STOP CHANNEL(B) CHLTYPE(MQTT) CLIENTID('pump-1')",
        "AMQ9533W: Channel B is not active: client 'pump-1' is not",
        [],
    ),
    (
        "PURGE CHANNEL(B) CHLTYPE(MQTT) CLIENTID('pump-2')",
        "AMQ9533W: Channel B is not active: client 'pump-2' has no",
        [],
    ),
    (
        "PURGE CHANNEL(A) CHLTYPE(MQTT) CLIENTID('nobody')",
        "AMQ9533W: Channel A is not active: client 'nobody' has no",
        [],
    ),
    ("DELETE CHANNEL(A) CHLTYPE(MQTT)", "AMQ8148E: Channel A is in use: it is running; hint: STOP CHANNEL first.", []),
]


@pytest.mark.parametrize(("command", "answer", "calls"), ASKED, ids=[case[0] for case in ASKED])
def test_commands_control_running_channels(
    manager: Manager, running: Running, command: str, answer: str, calls: list[object]
) -> None:
    response = manager.run(command)
    assert response.message.startswith(answer)
    assert response.ok is (answer[7] == "I")
    assert running.requests == calls


def test_a_channel_that_is_stopped_and_started_at_once(manager: Manager, running: Running) -> None:
    """A stopping channel can be started, and a starting one can be stopped."""
    running.states = {"A": "stopping", "B": "starting"}
    manager.ok("START CHANNEL(A) CHLTYPE(MQTT)")
    manager.ok("STOP CHANNEL(B) CHLTYPE(MQTT)")
    assert running.requests == [("start", "A"), ("stop", "B", None)]


def test_the_status_of_channels_is_displayed(manager: Manager, running: Running) -> None:
    a = {"CHANNEL": "A", "CHLTYPE": "MQTT", "CONNECTIONS": 2, "STATUS": "RUNNING"}
    b = a | {"CHANNEL": "B", "STATUS": "STOPPED"}
    assert display(manager, "DISPLAY CHSTATUS(*) CHLTYPE(MQTT)") == [a, b]
    assert display(manager, "DIS CHS(B) CHLTYPE(MQTT) SUMMARY ALL") == [b]
    assert display(manager, "DIS CHS(*) CHLTYPE(MQTT) WHERE(STATUS EQ RUNNING)") == [a]


def test_the_status_of_clients_is_displayed(manager: Manager, running: Running) -> None:
    first = {"CHANNEL": "A", "CHLTYPE": "MQTT", "CLIENTID": "pump-1", "STATUS": "RUNNING"}
    two = first | {"CLIENTID": "pump-2", "STATUS": "DISCONNECTED"}
    assert display(manager, "DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID(*)") == [first, two]
    assert display(manager, "DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID('pump-2*')") == [two]
    assert display(manager, "DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID(*) WHERE(STATUS EQ DISCONNECTED)") == [two]
    assert display(manager, "DISPLAY CHSTATUS(A) CHLTYPE(MQTT) CLIENTID('pump-1') MSGSNT PENDING") == [
        first | {"MSGSNT": 5, "PENDING": 7}
    ]
    assert display(manager, "DISPLAY CHSTATUS(A) CHLTYPE(MQTT) CLIENTID('pump-1') ALL") == [
        first
        | {
            "CHLSDATE": "",
            "CHLSTIME": "",
            "CLNTUSER": "carol",
            "CONNAME": "192.0.2.1:5000",
            "INDOUBTIN": 2,
            "INDOUBTOUT": 3,
            "KAINT": 60,
            "LMSGDATE": "",
            "LMSGTIME": "",
            "MCAUSER": "plant",
            "MSGRCVD": 11,
            "MSGSNT": 5,
            "PENDING": 7,
            "PROTOCOL": "MQTTV311",
        }
    ]
    manager.refused("DISPLAY CHSTATUS(B) CHLTYPE(MQTT) CLIENTID(*)", "AMQ8420I")


def test_connection_times_of_clients_are_displayed(manager: Manager, running: Running) -> None:
    there = running.all["pump-1"]
    there.status, there.last_message_at = msgspec.structs.replace(there.status, since=1_700_000_000.0), 1_700_000_001.0
    (row,) = display(manager, "DISPLAY CHSTATUS(A) CHLTYPE(MQTT) CLIENTID('pump-1') ALL")
    assert [len(str(row[key])) for key in ("CHLSDATE", "CHLSTIME", "LMSGDATE", "LMSGTIME")] == [10, 8, 10, 8]
    assert str(row["LMSGTIME"]) > str(row["CHLSTIME"]) or str(row["CHLSTIME"]).endswith("59")


def test_rows_are_limited(manager: Manager, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are MAXDEPTH of the reply queue of IBM MQ, and the number of clients that a command inspects."""
    running.all = {f"c{number}": client(f"c{number}", "A") for number in range(10)}
    manager.ok("ALTER QMODEL(SYSTEM.MQSC.REPLY.QUEUE) MAXDEPTH(4)")
    response = manager.ok("DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID(*)")
    assert (len(response.objects), response.message[:8]) == (4, "AMQ8492W")
    manager.ok("ALTER QMODEL(SYSTEM.MQSC.REPLY.QUEUE) MAXDEPTH(10)")
    response = manager.ok("DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID(*)")
    assert (len(response.objects), response.message[:8]) == (10, "AMQ8417I")
    monkeypatch.setattr(channel_display, "MAX_EXAMINED", 3)
    response = manager.ok("DISPLAY CHSTATUS(*) CHLTYPE(MQTT) CLIENTID(*) WHERE(CLIENTID NE 'c0')")
    assert (len(response.objects), response.message[:8]) == (2, "AMQ8492W")
    assert "examines 3," in response.message


def test_definitions_are_stored_with_all_attributes(tmp_path: Path, manager: Manager) -> None:
    """Not only with those that differ from the defaults, because a later version may have other defaults."""
    manager.ok("DEFINE CHANNEL(C) CHLTYPE(MQTT)")
    rows = [row for row in manager.itself.recovery_log._store.objects() if row[0] == "CHANNEL"]
    assert [(kind, name, attributes["PORT"]) for kind, name, attributes in rows] == [("CHANNEL", "C", 1883)]
