"""Inquire, Inquire Status, Start, Stop, Purge and Delete Channel with ChannelType MQCHT_MQTT."""

from __future__ import annotations

import pytest

from bridge.wire.mq.pcf import MQCFIF
from tests.helpers.pcf_administrator import Administrator
from tests.helpers.running_channels import Running
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.cmqcfc import (
    MQCACH_CHANNEL_NAME,
    MQCACH_CLIENT_ID,
    MQCACH_DESC,
    MQCMD_INQUIRE_CHANNEL,
    MQCMD_INQUIRE_CHANNEL_NAMES,
    MQCMD_INQUIRE_CHANNEL_STATUS,
    MQIACF_CONNECTION_COUNT,
    MQIACH_CHANNEL_STATUS,
    MQIACH_CHANNEL_TYPE,
)

MQTT = {MQIACH_CHANNEL_TYPE: cmqc.MQCHT_MQTT}


@pytest.fixture
def running(admin: Administrator) -> Running:
    """Channels A, which runs, and B, which is stopped."""
    script = "DEF CHL(A) CHLTYPE(MQTT) DESCR('the plant') PROTOCOL(MQTTV311)\nDEF CHL(B) CHLTYPE(MQTT)\n"
    assert [response.ok for response in admin.connection.command(script)] == [True, True]
    admin.queue_manager.objects.telemetry_channels.running = channels = Running()
    return channels


def test_channels(admin: Administrator, running: Running) -> None:
    """Inquiries of a monitoring program from IBM: by type, and for selected attributes."""
    wanted = {cmqcfc.MQIACF_CHANNEL_ATTRS: [MQCACH_DESC, MQCACH_CHANNEL_NAME]}
    assert admin.ask(MQCMD_INQUIRE_CHANNEL, {MQCACH_CHANNEL_NAME: "A*"} | MQTT | wanted) == [
        {MQCACH_CHANNEL_NAME: "A", MQIACH_CHANNEL_TYPE: cmqc.MQCHT_MQTT, MQCACH_DESC: "the plant"}
    ]
    channels = admin.ask(MQCMD_INQUIRE_CHANNEL, {MQCACH_CHANNEL_NAME: "*"} | MQTT)
    assert [channel[MQCACH_CHANNEL_NAME] for channel in channels] == ["A", "B"]
    expected = {
        cmqcfc.MQIACH_PORT: 1883,
        cmqcfc.MQIACH_BACKLOG: 4096,
        cmqcfc.MQIACH_SSL_CLIENT_AUTH: cmqc.MQSCA_NEVER_REQUIRED,
        cmqcfc.MQIACH_USE_CLIENT_ID: cmqc.MQUCI_NO,
        cmqcfc.MQIACH_XMIT_PROTOCOL_TYPE: cmqc.MQXPT_TCP,
    }
    assert (expected | {cmqcfc.MQIACH_PROTOCOL: cmqc.MQPROTO_MQTTV311}).items() <= channels[0].items()
    assert channels[1][cmqcfc.MQIACH_PROTOCOL] == [cmqc.MQPROTO_MQTTV311, cmqc.MQPROTO_MQTTV3]
    (names,) = admin.ask(MQCMD_INQUIRE_CHANNEL_NAMES, {MQCACH_CHANNEL_NAME: "*"} | MQTT)
    assert names == {cmqcfc.MQCACH_CHANNEL_NAMES: ["A", "B"]}
    assert admin.refused(MQCMD_INQUIRE_CHANNEL, {MQCACH_CHANNEL_NAME: "C"} | MQTT) == (
        cmqcfc.MQRCCF_CHANNEL_NOT_FOUND,
        None,
    )


def test_other_channel_types_are_not_found(admin: Administrator, running: Running) -> None:
    """Telemetry channels are listed only if their type is specified, as in IBM MQ."""
    name = {MQCACH_CHANNEL_NAME: "*"}
    assert admin.refused(MQCMD_INQUIRE_CHANNEL, name)[0] == cmqcfc.MQRCCF_CHANNEL_NOT_FOUND
    assert admin.refused(MQCMD_INQUIRE_CHANNEL_STATUS, name)[0] == cmqcfc.MQRCCF_CHL_STATUS_NOT_FOUND
    assert admin.refused(cmqcfc.MQCMD_PURGE_CHANNEL, name)[0] == cmqcfc.MQRCCF_CHANNEL_TYPE_ERROR
    assert not running.requests


def test_status(admin: Administrator, running: Running) -> None:
    """One message per channel. With a client identifier, one message per client."""
    everyone = {MQCACH_CHANNEL_NAME: "*"} | MQTT
    a = {
        MQCACH_CHANNEL_NAME: "A",
        MQIACH_CHANNEL_TYPE: cmqc.MQCHT_MQTT,
        MQIACF_CONNECTION_COUNT: 2,
        MQIACH_CHANNEL_STATUS: cmqcfc.MQCHS_RUNNING,
    }
    b = a | {MQCACH_CHANNEL_NAME: "B", MQIACH_CHANNEL_STATUS: cmqcfc.MQCHS_STOPPED}
    assert admin.ask(MQCMD_INQUIRE_CHANNEL_STATUS, everyone) == [a, b]
    clients = admin.ask(MQCMD_INQUIRE_CHANNEL_STATUS, everyone | {MQCACH_CLIENT_ID: "*"})
    assert [(client[MQCACH_CLIENT_ID], client[MQIACH_CHANNEL_STATUS]) for client in clients] == [
        ("pump-1", cmqcfc.MQCHS_RUNNING),
        ("pump-2", cmqcfc.MQCHS_DISCONNECTED),
    ]
    expected = {
        cmqcfc.MQIACH_IN_DOUBT_IN: 2,
        cmqcfc.MQIACH_IN_DOUBT_OUT: 3,
        cmqcfc.MQIACH_MQTT_KEEP_ALIVE: 60,
        cmqcfc.MQIACH_MSGS_RCVD: 11,
        cmqcfc.MQIACH_MSGS_SENT: 5,
        cmqcfc.MQIACH_PENDING_OUT: 7,
        cmqcfc.MQIACH_PROTOCOL: cmqc.MQPROTO_MQTTV311,
        cmqcfc.MQCACH_CLIENT_USER_ID: "carol",
        cmqcfc.MQCACH_MCA_USER_ID: "plant",
        cmqcfc.MQCACH_CONNECTION_NAME: "192.0.2.1:5000",
    }
    assert expected.items() <= clients[0].items()
    away = MQCFIF(MQIACH_CHANNEL_STATUS, cmqcfc.MQCFOP_EQUAL, cmqcfc.MQCHS_DISCONNECTED)
    (client,) = admin.ask(MQCMD_INQUIRE_CHANNEL_STATUS, everyone | {MQCACH_CLIENT_ID: "*"}, away)
    assert client[MQCACH_CLIENT_ID] == "pump-2"
    nobody = everyone | {MQCACH_CLIENT_ID: "nobody"}
    assert admin.refused(MQCMD_INQUIRE_CHANNEL_STATUS, nobody)[0] == cmqcfc.MQRCCF_CHL_STATUS_NOT_FOUND


ASKED = [
    ("START", {MQCACH_CHANNEL_NAME: "B"}, ("start", "B")),
    ("STOP", {MQCACH_CHANNEL_NAME: "A"}, ("stop", "A", None)),
    ("STOP", {MQCACH_CHANNEL_NAME: "A", MQCACH_CLIENT_ID: "pump-1"}, ("stop", "A", "pump-1")),
    ("PURGE", {MQCACH_CHANNEL_NAME: "A"}, ("purge", "A", None)),
    ("PURGE", {MQCACH_CHANNEL_NAME: "A", MQCACH_CLIENT_ID: "pump-2"}, ("purge", "A", "pump-2")),
    ("DELETE", {MQCACH_CHANNEL_NAME: "B"}, "changed"),
]
REFUSED = [
    ("START", {MQCACH_CHANNEL_NAME: "A"}, cmqcfc.MQRCCF_CHANNEL_IN_USE),
    ("START", {MQCACH_CHANNEL_NAME: "C"}, cmqcfc.MQRCCF_CHANNEL_NOT_FOUND),
    ("START", {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL),
    ("START", {MQCACH_CHANNEL_NAME: "B", MQCACH_CLIENT_ID: "pump-1"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR),
    ("STOP", {MQCACH_CHANNEL_NAME: "B"}, cmqcfc.MQRCCF_CHANNEL_NOT_ACTIVE),
    ("STOP", {MQCACH_CHANNEL_NAME: "A", MQCACH_CLIENT_ID: "pump-2"}, cmqcfc.MQRCCF_CHANNEL_NOT_ACTIVE),
    ("DELETE", {MQCACH_CHANNEL_NAME: "A"}, cmqcfc.MQRCCF_OBJECT_OPEN),
]


def test_commands_for_the_telemetry_service(admin: Administrator, running: Running) -> None:
    for verb, request, call in ASKED:
        running.requests.clear()
        assert admin.ask(getattr(cmqcfc, f"MQCMD_{verb}_CHANNEL"), request | MQTT) == [{}]
        assert running.requests == [call]


def test_rejected_commands(admin: Administrator, running: Running) -> None:
    for verb, request, reason in REFUSED:
        assert admin.refused(getattr(cmqcfc, f"MQCMD_{verb}_CHANNEL"), request | MQTT)[0] == reason
    assert not running.requests
