"""SET and DISPLAY CHLAUTH: stored and displayed records, the record that applies, and records of the configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.security.channel_authentication import Connecting
from tests.helpers.embedded_manager import Manager

DEFAULT = {
    "CHLAUTH": "*",
    "TYPE": "BLOCKUSER",
    "DESCR": "Default rule to disallow privileged users",
    "USERLIST": "*MQADMIN",
    "WARN": "NO",
}


def display(manager: Manager, command: str) -> list[dict[str, str | int]]:
    return manager.ok(command).objects


def test_records_of_a_new_queue_manager(manager: Manager) -> None:
    assert display(manager, "DISPLAY CHLAUTH(*) ALL") == [DEFAULT]


def test_set_and_display(manager: Manager) -> None:
    answer = manager.ok(
        "SET CHLAUTH('PLAIN.*') TYPE(ADDRESSMAP) ADDRESS('10.1.*') USERSRC(MAP) MCAUSER('plant') DESCR('the plant')"
    )
    assert answer.message.startswith("AMQ8877I")
    record = {
        "CHLAUTH": "PLAIN.*",
        "TYPE": "ADDRESSMAP",
        "DESCR": "the plant",
        "ADDRESS": "10.1.*",
        "USERSRC": "MAP",
        "MCAUSER": "plant",
        "WARN": "NO",
    }
    assert display(manager, "DISPLAY CHLAUTH('PLAIN.*')") == [record]
    assert display(manager, "DISPLAY CHLAUTH(*)") == [record, DEFAULT]
    assert display(manager, "DISPLAY CHLAUTH(*) TYPE(ADDRESSMAP)") == [record]
    assert display(manager, "DISPLAY CHLAUTH('PLAIN.MQTT') MATCH(GENERIC)") == [record, DEFAULT]
    client = Connecting("PLAIN.MQTT", "10.1.2.3", "carol")
    verdict = manager.itself.objects.channel_authentication.at_work.verdict(client, "carol")
    assert verdict.mcauser == "plant"


def test_actions(manager: Manager) -> None:
    user = "SET CHLAUTH('A') TYPE(USERMAP) CLNTUSER('carol')"
    manager.ok(f"{user} MCAUSER('one')")
    manager.refused(f"{user} MCAUSER('two')", "AMQ8883E")
    manager.ok(f"{user} MCAUSER('two') ACTION(REPLACE)")
    assert [row["MCAUSER"] for row in display(manager, "DISPLAY CHLAUTH('A')")] == ["two"]
    manager.ok(f"{user} ACTION(REMOVE)")
    manager.refused(f"{user} ACTION(REMOVE)", "AMQ8884E")
    manager.ok("SET CHLAUTH('A') TYPE(BLOCKUSER) USERLIST('x','y')")
    manager.ok("SET CHLAUTH('A') TYPE(BLOCKUSER) USERLIST('z','x')")
    assert [row["USERLIST"] for row in display(manager, "DISPLAY CHLAUTH('A')")] == ["x,y,z"]
    manager.ok("SET CHLAUTH('A') TYPE(BLOCKUSER) USERLIST('y') ACTION(REMOVE)")
    assert [row["USERLIST"] for row in display(manager, "DISPLAY CHLAUTH('A')")] == ["x,z"]
    manager.ok("SET CHLAUTH('A') TYPE(BLOCKUSER) ACTION(REMOVEALL)")
    manager.refused("DISPLAY CHLAUTH('A')", "AMQ8884E")
    manager.ok("SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('guest')")
    assert [row["USERLIST"] for row in display(manager, "DISPLAY CHLAUTH('*') TYPE(BLOCKUSER)")] == ["*MQADMIN,guest"]


def test_runcheck(manager: Manager) -> None:
    """DISPLAY shows the record that applies to a client."""
    manager.ok("SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)")
    manager.ok("SET CHLAUTH('PLAIN.*') TYPE(USERMAP) CLNTUSER('carol') USERSRC(CHANNEL)")
    manager.ok("SET CHLAUTH('PLAIN.*') TYPE(SSLPEERMAP) SSLPEER('O=Example') MCAUSER('device')")

    def decides(more: str, channel: str = "PLAIN.MQTT") -> object:
        (record,) = display(manager, f"DISPLAY CHLAUTH('{channel}') MATCH(RUNCHECK) ADDRESS('10.1.2.3') {more}")
        return record["TYPE"]

    assert decides("CLNTUSER('dave')") == "ADDRESSMAP"
    assert decides("CLNTUSER('carol')") == "USERMAP"
    assert decides("CLNTUSER('carol')", "OTHER") == "ADDRESSMAP"
    assert decides("CLNTUSER('carol') SSLPEER('CN=pump,O=Example')") == "SSLPEERMAP"
    manager.ok("SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('carol')")
    assert decides("CLNTUSER('carol')") == "BLOCKUSER"
    manager.refused("DISPLAY CHLAUTH('PLAIN.MQTT') MATCH(RUNCHECK)", "AMQ8405I")
    manager.refused("DISPLAY CHLAUTH('PLAIN.*') MATCH(RUNCHECK) ADDRESS('10.1.2.3')", "AMQ8405I")


def test_runcheck_of_privileged_users(manager: Manager) -> None:
    """Users are compared as in MQ, also if no record blocks them, and with the records of the channel."""
    manager.itself.objects.channel_authentication.use_file(
        [], [ChannelConfig(name="BY.MCAUSER", mcauser="mqm"), ChannelConfig(name="BY.CLIENT", use_client_id=True)]
    )

    def check(channel: str, user: str) -> str:
        return f"DISPLAY CHLAUTH({channel}) MATCH(RUNCHECK) ADDRESS('10.1.2.3') CLNTUSER('{user}')"

    for channel, user in (("A", "mqm"), ("A", "mqm          x"), ("BY.MCAUSER", "carol")):
        assert display(manager, check(channel, user)) == [DEFAULT]
    for channel, user in (("A", "carol"), ("BY.CLIENT", "mqm")):
        manager.refused(check(channel, user), "AMQ8884E")
    manager.ok("SET CHLAUTH(*) TYPE(BLOCKUSER) USERLIST('*MQADMIN') ACTION(REMOVE)")
    for channel, user in (("A", "mqm"), ("BY.MCAUSER", "carol")):
        assert "'mqm' is a privileged user" in manager.refused(check(channel, user), "AMQ8101E")


@pytest.mark.parametrize("rest", ["USERLIST('*MQADMIN') ACTION(REMOVE)", "ACTION(REMOVEALL)"])
def test_the_default_record_can_be_removed(manager: Manager, rest: str) -> None:
    """It stays removed after a restart. Privileged users are still rejected. The record can be set again."""
    answer = manager.ok(f"SET CHLAUTH(*) TYPE(BLOCKUSER) {rest}")
    assert "Privileged users are still rejected" in answer.message
    for _ in range(2):
        manager.refused("DISPLAY CHLAUTH(*)", "AMQ8884E")
        verdict = manager.itself.objects.channel_authentication.at_work.verdict(
            Connecting("A", "10.1.2.3", "mqm"), "mqm"
        )
        assert verdict.refusal
        manager.restart()
    manager.refused(f"SET CHLAUTH(*) TYPE(BLOCKUSER) {rest}", "AMQ8884E")
    manager.ok("SET CHLAUTH(*) TYPE(BLOCKUSER) USERLIST('*MQADMIN') DESCR('again')")
    manager.restart()
    assert [row["DESCR"] for row in display(manager, "DISPLAY CHLAUTH(*)")] == ["again"]


def test_records_of_the_file_cannot_be_changed(manager: Manager) -> None:
    record = {"type": "USERMAP", "client_user": "carol", "mcauser": "file"}
    manager.itself.objects.channel_authentication.use_file([ChannelAuthenticationConfig.model_validate(record)])
    assert [row["MCAUSER"] for row in display(manager, "DISPLAY CHLAUTH(*) TYPE(USERMAP)")] == ["file"]
    for rest in (
        "CLNTUSER('carol') MCAUSER('other') ACTION(REPLACE)",
        "CLNTUSER('carol') MCAUSER('other') ACTION(REMOVE)",
        "ACTION(REMOVEALL)",
    ):
        answer = manager.refused(f"SET CHLAUTH('*') TYPE(USERMAP) {rest}", "AMQ8101E")
        assert "the bridge's configuration file defines that record" in str(answer)


@pytest.mark.parametrize(
    "rest",
    [
        "('A') TYPE(ADDRESSMAP)",
        "('A') TYPE(ADDRESSMAP) ADDRESS('host.example') MCAUSER('x')",
        "('A') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(MAP)",
        "('A') TYPE(ADDRESSMAP) ADDRESS('300.1.1.1') MCAUSER('x')",
        "('A') TYPE(ADDRESSMAP) ADDRESS('10.1.2') MCAUSER('x')",
        "('*') TYPE(BLOCKADDR) ADDRLIST('10.1.2.3','dead')",
        "('A') TYPE(SSLPEERMAP) SSLPEER('CN:pump*') MCAUSER('x')",
        "('A') TYPE(SSLPEERMAP) SSLPEER('XN=pump*') MCAUSER('x')",
        "('A') TYPE(SSLPEERMAP) SSLPEER('CN=pump*') SSLCERTI('pump') MCAUSER('x')",
        "('A') TYPE(BANANA)",
        "('A') TYPE(USERMAP) CLNTUSER('a') MCAUSER('x') BANANA(1)",
        "('A') TYPE(USERMAP) CLNTUSER('a') MCAUSER('x') ACTION(BANANA)",
        "('A') TYPE(BLOCKUSER) USERLIST('a') WARN(PERHAPS)",
        "TYPE(BLOCKUSER)",
    ],
)
def test_invalid_records(manager: Manager, rest: str) -> None:
    before = display(manager, "DISPLAY CHLAUTH(*)")
    manager.refused(f"SET CHLAUTH{rest}", "AMQ8405I")
    assert display(manager, "DISPLAY CHLAUTH(*)") == before


def test_a_record_for_queue_managers_is_accepted_with_a_message(manager: Manager) -> None:
    """A script that is shared with IBM MQ continues."""
    answer = manager.ok("SET CHLAUTH('TO.MQB1') TYPE(QMGRMAP) QMNAME('QM2') USERSRC(MAP) MCAUSER('qm2')")
    assert "no effect" in answer.message


def test_records_survive_a_restart(tmp_path: Path, manager: Manager) -> None:
    manager.ok("SET CHLAUTH('A') TYPE(BLOCKUSER) USERLIST('x','y') WARN(YES)")
    manager.ok("SET CHLAUTH('B') TYPE(USERMAP) CLNTUSER('a') MCAUSER('b')")
    manager.ok("SET CHLAUTH('B') TYPE(USERMAP) CLNTUSER('a') ACTION(REMOVE)")
    manager.itself.close()
    again = QueueManager(manager.itself.name, manager.itself.data_directory)
    assert [
        (record.channel, record.user_list, record.warn) for record in again.objects.channel_authentication.of_commands
    ] == [("A", ["x", "y"], True)]
    again.close()
