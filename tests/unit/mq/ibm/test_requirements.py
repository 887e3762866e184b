"""Requirements of a configuration for its queue manager, and the MQSC script that fulfils them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config.authentication import PasswordAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.config.models import Configuration, default_configuration
from bridge.config.queue_manager import BatchConfig, BridgeQueues, EmbeddedQueueManagerConfig, IbmQueueManagerConfig
from bridge.mq.embedded.mqsc.commands import run_script
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.mqsc_script import mqsc_script
from bridge.mq.ibm.requirements import Authority, MappingQueue, QueueManagerAttributes, Requirements, requirements_of
from bridge.mq.ibm.requirements_check import missing
from bridge.shipped import shipped_file
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.pcf.command_server import CommandServer

#: The bridge's user, and a user of clients. No such users exist on any machine.
XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"
OURS, SENSOR = "mqtestbridge", "mqtestsensor"
MAPPINGS = {
    "to-queue": {"from": {"mqtt": "a/+"}, "to": {"queue": "OUT"}},
    "elsewhere": {"from": {"mqtt": "b/+"}, "to": {"queue": "OUT", "queue_manager": "QM2"}},
    "by-template": {"from": {"mqtt": "c/{line}"}, "to": {"queue": "LINE.{line}"}},
    "to-topic": {"from": {"mqtt": "d", "link": "cloud"}, "to": {"topic": "d"}},
    "from-queue": {"from": {"queue": "IN"}, "to": {"mqtt": "e", "link": "cloud"}, "guarantee": "exactly-once"},
}


def configuration(**queue_manager: Any) -> Configuration:
    """A configuration that needs every kind of object and authority."""
    settings = {"type": "ibm", "name": "MQB1", "mode": "bindings", "user": OURS, **queue_manager}
    return Configuration.model_validate(
        {
            "queue_manager": settings,
            "channels": [{"name": "A", "port": 1}, {"name": "B", "port": 2, "mcauser": SENSOR}],
            "links": {"cloud": {"host": "localhost"}},
            "mappings": MAPPINGS,
        }
    )


def test_requirements_of_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    channels = [
        ChannelConfig(name="A", port=1),
        ChannelConfig(name="B", port=2, mcauser="sensor"),
        ChannelConfig(name="C", port=3, use_client_id=True, max_packet_size=1_000_000),
    ]
    embedded = Configuration(channels=channels, transmission_queue="XMIT")
    assert requirements_of(embedded) == Requirements(
        bridge_queues=BridgeQueues("XMIT", common_transmission="XMIT"), user="somebody", identities=("", "sensor")
    )
    asking = embedded.model_copy(update={"queue_manager": EmbeddedQueueManagerConfig(authorities="enforced")})
    assert requirements_of(asking).identities == ("nobody", "sensor")
    password = PasswordAuthenticationConfig(method="password", file="passwords")
    authenticated = [channels[0].model_copy(update={"authentication": [password]}), *channels[1:]]
    assert requirements_of(asking.model_copy(update={"channels": authenticated})).identities == ("sensor",)
    queue_manager = IbmQueueManagerConfig(
        name="QM1", mode="bindings", user="ours", dead_letter_queue="DLQ", batch=BatchConfig(messages=5000)
    )
    assert requirements_of(embedded.model_copy(update={"queue_manager": queue_manager})) == Requirements(
        queue_manager="QM1",
        bridge_queues=BridgeQueues("XMIT", common_transmission="XMIT"),
        user="ours",
        identities=("", "sensor"),
        dead_letter_queue="DLQ",
        uncommitted=15_000,
        message_length=4 * 1024 * 1024 + 65_536,
    )


def test_queues_of_mappings() -> None:
    needs = requirements_of(configuration())
    assert needs.mapping_queues == (
        MappingQueue("to-queue", "OUT", ("PUT", "SETID")),
        MappingQueue("elsewhere", "OUT", ("PUT", "SETID"), queue_manager="QM2", transmission_queue="QM2"),
        MappingQueue("from-queue", "IN", ("INQ", "GET"), exclusive=True),
    )
    assert needs.mapping_templates == (("by-template", "LINE.{line}", False),)
    assert needs.mapping_publishes and needs.mapping_state


@pytest.mark.parametrize(
    ("to", "publishes"),
    [
        ({"mqtt": "t"}, True),
        ({"mqtt": "t", "link": "cloud"}, False),
        ({"mqtt": "t", "as": "publisher"}, False),
        ({"topic": "t"}, True),
        ({"topic": "t", "as": "publisher"}, False),
        ({"queue": "OUT"}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("enabled", [True, False])
def test_mappings_that_publish_as_the_bridge(to: dict[str, str], publishes: bool, enabled: bool) -> None:
    source = {"topic": "a"} if "mqtt" in to else {"mqtt": "a"}
    config = Configuration.model_validate(
        {
            "channels": [{"name": "C", "port": 1, "mcauser": "sensor"}],
            "links": {"cloud": {"host": "broker"}},
            "mappings": {"m": {"enabled": enabled, "from": source, "to": to}},
        }
    )
    needs = requirements_of(config)
    assert needs.mapping_publishes is (publishes and enabled)
    purposes = [
        authority.purpose for authority in needs.authorities("") if (authority.user, authority.word) == ("", "PUB")
    ]
    assert purposes == (["publish for mappings"] if publishes and enabled else [])


def test_mappings_with_the_authority_of_publishers() -> None:
    """The publishers need PUT, and the bridge only SETID. Neither needs authority for topics because of a mapping."""
    mappings = {
        "queue": {"from": {"mqtt": "a"}, "to": {"queue": "OUT", "as": "publisher"}},
        "queues": {"from": {"mqtt": "{q}"}, "to": {"queue": "{q}", "as": "publisher"}},
        "topic": {"from": {"mqtt": "c"}, "to": {"topic": "d", "as": "publisher"}},
    }
    channels = [{"name": "A", "mcauser": "sensor"}, {"name": "B", "port": 1884}]
    config = Configuration.model_validate(
        {
            "queue_manager": {"type": "ibm", "name": "QM1", "mode": "bindings"},
            "channels": channels,
            "mappings": mappings,
        }
    )
    needs = requirements_of(config)
    assert needs.mapping_queues == (MappingQueue("queue", "OUT", ("SETID",), as_publisher=True),)
    assert needs.mapping_templates == (("queues", "{q}", True),)
    assert not needs.mapping_publishes
    rows = [
        (authority.user, authority.word, authority.needed)
        for authority in needs.authorities("")
        if authority.name == "OUT"
    ]
    assert rows == [("", "SETID", True), ("sensor", "PUT", False), ("", "DSP", False)]
    words = mqsc_script(config).replace("+\n", "").split()
    script = " ".join(words)
    assert "SET AUTHREC PROFILE('OUT') OBJTYPE(QUEUE) PRINCIPAL('sensor') AUTHADD(PUT)" in script
    assert "AUTHADD(SETID)" in script
    assert "It puts as the users of its MQTT clients. Each of them needs PUT." in script


@pytest.mark.parametrize(
    ("mapping", "needed"),
    [
        ({}, False),
        ({"guarantee": "at-most-once"}, False),
        ({"guarantee": "exactly-once"}, True),
        ({"guarantee": "exactly-once", "enabled": False}, False),
    ],
)
def test_the_state_queue_of_mappings_is_needed_for_exactly_once(mapping: dict[str, object], needed: bool) -> None:
    described = {"from": {"queue": "Q"}, "to": {"mqtt": "t"}, **mapping}
    requirements = requirements_of(Configuration.model_validate({"mappings": {"m": described}}))
    assert requirements.mapping_state is needed
    names = [queue.name for queue in requirements.queues("")]
    assert ("SYSTEM.MQTT.MAPPING.STATE" in names) is needed


def test_the_shipped_script_is_that_of_the_default_configuration() -> None:
    """To write it again: mqbridge mqsc-script > deploy/mq/bridge.mqsc."""
    assert mqsc_script(default_configuration()) == shipped_file("deploy/mq/bridge.mqsc").read_text()


# The script on a queue manager that enforces authorities ---------------------------------------------------------------


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[QueueManager]:
    """A queue manager prepared by the script of `configuration`, with the queues of its mappings."""
    queue_manager = QueueManager("MQB1", tmp_path)
    queue_manager.enforce_authorities()
    own = "DEFINE QLOCAL(IN)\nDEFINE QLOCAL(OUT) MAXMSGL(104857600)\nDEFINE QLOCAL(QM2) USAGE(XMITQ)\n"
    run_script(queue_manager, own, "test")
    run_script(queue_manager, mqsc_script(configuration(), f"PRINCIPAL('{OURS}')"), "mqsc-script")
    CommandServer(queue_manager).start()
    yield queue_manager
    queue_manager.close()


def lacking(queue_manager: QueueManager) -> list[tuple[str, str]]:
    """Return the requirements that are missing for the bridge's user, with the MQSC that adds them."""
    connection = StandInConnection(queue_manager, user=OURS)
    try:
        return [
            (shortcoming.what, shortcoming.remedy)
            for shortcoming in missing(connection, requirements_of(configuration()))
        ]
    finally:
        connection.disconnect()


def granted() -> list[Authority]:
    """Return the authorities that the script grants, except CONNECT, without which there is no connection."""
    return [authority for authority in requirements_of(configuration()).authorities("") if authority.word != "CONNECT"]


@pytest.mark.parametrize("authority", granted(), ids=lambda authority: " ".join(filter(None, authority.key)))
def test_each_authority_of_the_script_is_reported_if_it_is_missing(
    queue_manager: QueueManager, authority: Authority
) -> None:
    """So the script grants only necessary authorities, and the check finds all missing ones."""
    user = authority.user or OURS
    profile = f"PROFILE('{authority.name}') " if authority.name else ""
    record = f"SET AUTHREC {profile}OBJTYPE({authority.kind}) PRINCIPAL('{user}')"
    run_script(queue_manager, f"{record} AUTHRMV({authority.word})", "test")
    before = subscriptions(queue_manager)
    ((problem, remedy),) = lacking(queue_manager)
    assert (problem.split(",")[0].startswith(f"user {user} lacks authority"), remedy) == (
        True,
        f"{record} AUTHADD({authority.word})",
    )
    assert subscriptions(queue_manager) == before
    run_script(queue_manager, remedy, "test")
    assert lacking(queue_manager) == []


def subscriptions(queue_manager: QueueManager) -> set[str]:
    return set(queue_manager.objects.topics.subscriptions)


def test_an_examination_leaves_nothing_behind(queue_manager: QueueManager) -> None:
    administrator = StandInConnection(queue_manager)

    def displays() -> list[Any]:
        commands = ("DISPLAY QSTATUS(*)", "DISPLAY QUEUE(*)", "DISPLAY SUB(*)", "DISPLAY TPSTATUS('#')")
        return [administrator.command(command)[0].objects for command in commands]

    before = displays()
    lacking(queue_manager)
    assert displays() == before
    administrator.disconnect()


CHANNEL = {"mode": "client", "channel": "MQTT.BRIDGE", "connections": "mq1(1414)"}
TLS = {"key_repository": "/etc/mqbridge/key", "cipher_spec": "TLS_AES_256_GCM_SHA384", "certificate_label": "bridge"}


@pytest.mark.parametrize("security", [{}, {"user": None, "tls": TLS}], ids=["password", "certificate"])
def test_each_command_of_a_script_with_a_channel_succeeds(
    queue_manager: QueueManager, security: dict[str, Any]
) -> None:
    script = mqsc_script(configuration(**CHANNEL, **security), f"PRINCIPAL('{OURS}')", OURS)
    responses = run_script(queue_manager, script, "mqsc-script")
    assert {response.message.partition(":")[0] for response in responses if not response.ok} == {
        "AMQ8150E"
    }  # already exists
    assert lacking(queue_manager) == []


def test_a_script_with_aliases_does_not_change_the_default_transmission_queue(tmp_path: Path) -> None:
    """The script routes messages to clients by queue manager aliases, and the check accepts them."""
    manager = QueueManager("MQB1", tmp_path)
    manager.enforce_authorities()
    own = "DEFINE QLOCAL(HUB) USAGE(XMITQ)\nDEFINE QLOCAL(DLQ)\nALTER QMGR DEFXMITQ(HUB) DEADQ(DLQ)\n"
    run_script(manager, f"{own}DEFINE QLOCAL(IN)\nDEFINE QLOCAL(OUT) MAXMSGL(104857600)\n", "test")
    CommandServer(manager).start()
    administrator = StandInConnection(manager)
    existing = QueueManagerAttributes.of(administrator)
    assert (existing.default_route, existing.dead_letter_queue) == ("HUB", "DLQ")
    script = mqsc_script(configuration(), f"PRINCIPAL('{OURS}')", aliases=True, existing=existing)
    assert [response.message for response in run_script(manager, script, "test") if not response.ok] == []
    assert QueueManagerAttributes.of(administrator) == msgspec.structs.replace(existing, uncommitted=10_000)
    lacks = [problem for problem, _ in lacking(manager)]
    assert [line for line in lacks if "DEFXMITQ" in line or XMITQ in line] == []
    # Without the authority to inquire the alias, the bridge does not know it.
    run_script(
        manager, f"SET AUTHREC PROFILE('mqbridge.check') OBJTYPE(QUEUE) PRINCIPAL('{OURS}') AUTHRMV(DSP)", "test"
    )
    assert any("DEFXMITQ) is HUB" in problem for problem, _ in lacking(manager))
    administrator.disconnect()
    manager.close()


def test_a_script_shows_the_former_default_transmission_queue_before_it_sets_another() -> None:
    lines = mqsc_script(configuration()).splitlines()
    assert lines.index("DISPLAY QMGR DEFXMITQ") == lines.index(f"ALTER QMGR DEFXMITQ('{XMITQ}')") - 1
    assert "ALTER QMGR DEADQ('SYSTEM.DEAD.LETTER.QUEUE')" in lines
    script = mqsc_script(
        configuration(), existing=QueueManagerAttributes(dead_letter_queue="DLQ", uncommitted=999_999_999)
    ).splitlines()
    assert not [line for line in script if "DEADQ" in line and not line.startswith("*")]
    assert not [line for line in script if "MAXUMSGS" in line]


def test_a_script_names_requirements_of_users_who_log_in_at_the_queue_manager() -> None:
    settings = configuration().model_dump(exclude_unset=True, by_alias=True)
    settings["channels"][0]["authentication"] = [{"method": "queue-manager"}]
    script = mqsc_script(Configuration.model_validate(settings))
    assert "* Clients of channel A log in with a user and password" in script
    assert "* SET AUTHREC OBJTYPE(QMGR) GROUP('devices') AUTHADD(CONNECT)" in script
    assert "log in with a user" not in mqsc_script(configuration())


def test_the_channel_of_a_script_requires_the_password_of_its_user() -> None:
    script = mqsc_script(configuration(**CHANNEL))
    commands = " ".join(line.removesuffix("+").strip() for line in script.splitlines() if not line.startswith("*"))
    assert (
        "DEFINE CHANNEL('MQTT.BRIDGE') CHLTYPE(SVRCONN) TRPTYPE(TCP) NOREPLACE DESCR('MQTT bridge')"
        " MCAUSER('*NOACCESS') MAXMSGL(104857600) SHARECNV(1) HBINT(10) SSLCIPH(' ') SSLCAUTH(OPTIONAL)"
    ) in commands
    assert "ADDRESS('*') USERSRC(NOACCESS)" in commands
    assert "USERSRC(CHANNEL) CHCKCLNT(REQUIRED)" in commands
    assert "SSLPEERMAP" not in commands


def test_the_channel_of_a_script_maps_a_certificate_to_the_user() -> None:
    script = mqsc_script(configuration(**CHANNEL, user=None, tls=TLS), user=OURS)
    assert "SSLCIPH(TLS_AES_256_GCM_SHA384)" in script and "SSLCAUTH(REQUIRED)" in script
    assert "SSLPEER('CN=mqbridge')" in script and f"MCAUSER('{OURS}')" in script


def test_a_publisher_without_authority_for_the_queue_of_a_mapping_is_a_note(queue_manager: QueueManager) -> None:
    needs = msgspec.structs.replace(
        requirements_of(configuration()),
        identities=("sensor",),
        mapping_queues=(MappingQueue("m", "OUT", ("SETID",), as_publisher=True),),
    )

    def notes() -> list[tuple[bool, str]]:
        connection = StandInConnection(queue_manager, user=OURS)
        try:
            return [
                (shortcoming.needed, shortcoming.remedy)
                for shortcoming in missing(connection, needs)
                if "queue OUT" in shortcoming.what
            ]
        finally:
            connection.disconnect()

    remedy = "SET AUTHREC PROFILE('OUT') OBJTYPE(QUEUE) PRINCIPAL('sensor') AUTHADD(PUT)"
    assert notes() == [(False, remedy)]
    run_script(queue_manager, remedy, "test")
    assert notes() == []
