"""Each kind of mistake in a queue_manager section of type ibm: the text, and all reported lines."""

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.problems import ConfigurationError
from tests.helpers.configuration_mistakes import DURATION_UNITS, NO_DEFAULT, mistakes_of

CONNECTIONS = "host(port), or several with commas or as a list, of at most 264 characters together"
NEEDED = "because mode client needs channel and connections (or ccdt_url)"
IN_BINDINGS = "no value, because mode bindings connects without a channel"
IN_THE_CCDT = "no value, because the CCDT of ccdt_url contains it"
NO_PASSWORD = (
    "no password in this file, because this file is not secret (write it to a file that only the bridge may read, and name"
    " that as password_file; or into the environment variable MQBRIDGE_PASSWORD)"
)
SERVER = "a server such as mqtt-{shard}.example.com:8883"
IBM_KEYS = (
    "a known key (type, name, library, mode, ccdt_url, channel, connections, user, password_file, password_variable,"
    " token_file, tls, application_name, dead_letter_queue, client_identifiers, publishers, removers,"
    " subscription_connections, batch, asynchronous_puts, read_ahead, shard, standby_delay, outage_timeout or"
    " probe_interval)"
)

#: A valid section for client mode. The text of a case is added in line 6.
CLIENT = "queue_manager:\n  type: ibm\n  name: QM1\n  channel: MQTT.BRIDGE\n  connections: mq1(1414)\n  "
BINDINGS = "queue_manager:\n  type: ibm\n  name: QM1\n  mode: bindings\n  "
CCDT = "queue_manager:\n  type: ibm\n  name: QM1\n  ccdt_url: file:///ccdt.json\n  "

MISTAKES = {
    "queue_manager: {type: ibm}": (
        f"1:16: queue_manager.name: expected {NO_DEFAULT}, found nothing\n"
        f"1:16: queue_manager.channel: expected the name of a server-connection channel, {NEEDED}, found nothing\n"
        f"1:16: queue_manager.connections: expected host(port), {NEEDED}, found nothing"
    ),
    "queue_manager:\n  {type: ibm, name: A, channel: C, connections: ~}": (
        f"2:49: queue_manager.connections: expected host(port), {NEEDED}, found ~"
    ),
    CLIENT + "data_directory: d": f"6:3: queue_manager.data_directory: expected {IBM_KEYS}, found 'data_directory'",
    CLIENT + "publishrs: 1": (
        "6:3: queue_manager.publishrs: expected a known key (did you mean publishers?), found 'publishrs'"
    ),
    CLIENT + "password: hunter2": f"6:3: queue_manager.password: expected {NO_PASSWORD}, found 'password'",
    CLIENT + "password_variable: hunter-2": (
        "6:22: queue_manager.password_variable:"
        " expected the name of an environment variable (not the password), found (hidden)"
    ),
    CLIENT + "mode: local": "6:9: queue_manager.mode: expected client or bindings, found 'local'",
    CLIENT + "batch: {tme: 1}": "6:11: queue_manager.batch.tme: expected a known key (did you mean time?), found 'tme'",
    CLIENT + "tls: {key_repository: k}": (
        "6:8: queue_manager.tls.cipher_spec: expected a CipherSpec, because without ccdt_url the bridge defines the channel,"
        " found nothing"
    ),
    CLIENT + "ccdt_url: file:///ccdt.json": (
        f"4:12: queue_manager.channel: expected {IN_THE_CCDT}, found 'MQTT.BRIDGE'\n"
        f"5:16: queue_manager.connections: expected {IN_THE_CCDT}, found 'mq1(1414)'"
    ),
    CCDT + "tls: {key_repository: k, cipher_spec: ANY}": (
        "5:41: queue_manager.tls.cipher_spec: expected no value, because the CCDT that ccdt_url names contains it,"
        " found 'ANY'"
    ),
    CLIENT + "tls: {key_repository: k, cipher_spec: ANY, peer_name: QM1}": (
        "6:57: queue_manager.tls.peer_name: expected one of SERIALNUMBER, MAIL, UID, CN, T, OU, DC, O, STREET, L, ST, PC, C,"
        " UNSTRUCTUREDNAME, UNSTRUCTUREDADDRESS, DNQ before = in 'QM1', found 'QM1'"
    ),
    **{
        CLIENT + f"tls: {{key_repository: k, cipher_spec: ANY, peer_name: '{name}'}}": (
            "6:57: queue_manager.tls.peer_name: expected attribute types in upper case without a blank before =, such as"
            f" CN=QM1, found '{name}'"
        )
        for name in ("cn=QM1", "O=a;CN =QM1")
    },
    CLIENT + "tls: {key_repository: k, cipher_spec: ANY, key_repository_password: hunter2}": (
        "6:46: queue_manager.tls.key_repository_password: expected no password in this file, because this file is not secret"
        " (write it to a file that only the bridge may read, and name that file as key_repository_password_file), found"
        " 'key_repository_password'"
    ),
    CLIENT + "tls: {key_repository: k, cipher_spec: ANY, key_repository_password_file: p,"
    " key_repository_password_variable: V}": (
        "6:113: queue_manager.tls.key_repository_password_variable: expected key_repository_password_file or"
        " key_repository_password_variable, not both, found 'V'"
    ),
    CLIENT + "user: u\n  token_file: t": (
        "7:15: queue_manager.token_file: expected no token_file together with user and password_file, because a token"
        " replaces both, found 't'"
    ),
    CLIENT + "library: pymqi\n  token_file: t": (
        "7:15: queue_manager.token_file: expected no value with library: pymqi, which cannot send a token (use ibmmq),"
        " found 't'"
    ),
    BINDINGS + "token_file: t": f"5:15: queue_manager.token_file: expected {IN_BINDINGS}, found 't'",
    "queue_manager: {type: ibm, name: '*GROUP', channel: C, connections: a(1)}": (
        "1:16: queue_manager.ccdt_url: expected the URL of a CCDT, because name is a queue manager group, found nothing"
    ),
    BINDINGS + "channel: C": f"5:12: queue_manager.channel: expected {IN_BINDINGS}, found 'C'",
    BINDINGS + "connections: a(1)": f"5:16: queue_manager.connections: expected {IN_BINDINGS}, found 'a(1)'",
    BINDINGS + "ccdt_url: file:///c": f"5:13: queue_manager.ccdt_url: expected {IN_BINDINGS}, found 'file:///c'",
    BINDINGS + "tls: {key_repository: k, cipher_spec: ANY}": (
        f"5:8: queue_manager.tls: expected {IN_BINDINGS}, found a mapping"
    ),
    **{
        CLIENT + f"shard: {shard}": f"6:{column}: queue_manager.shard{option}: expected {expected}, found {value}"
        for shard, column, option, expected, value in (
            ("2", 10, "", "a mapping (lines of 'key: value')", "2"),
            ("{of: 2}", 10, ".number", NO_DEFAULT, "nothing"),
            ("{number: 1}", 10, ".of", NO_DEFAULT, "nothing"),
            ("{number: 1, of: 2, off: 3}", 29, ".off", "a known key (did you mean of?)", "'off'"),
            ("{number: -1, of: 2}", 19, ".number", "an integer from 0 to 1023", "-1"),
            ("{number: 1024, of: 2}", 19, ".number", "an integer from 0 to 1023", "1024"),
            ("{number: one, of: 2}", 19, ".number", "an integer from 0 to 1023", "'one'"),
            ("{number: 2, of: 2}", 19, ".number", "an integer from 0 to 1, because there are 2 shards", "2"),
            ("{number: 0, of: 1}", 26, ".of", "an integer from 2 to 1024", "1"),
            ("{number: 0, of: 1025}", 26, ".of", "an integer from 2 to 1024", "1025"),
            ("{number: 0, of: 2.5}", 26, ".of", "an integer from 2 to 1024", "2.5"),
            ("{number: 0, of: 2, server_reference: 'a b'}", 47, ".server_reference", SERVER, "'a b'"),
            ("{number: 0, of: 2, server_reference: 7}", 47, ".server_reference", f"{SERVER}, in quotes", "7"),
        )
    },
    CLIENT + "standby_delay: 2 h": (
        f"6:18: queue_manager.standby_delay: expected a duration from 0 s to 1 h {DURATION_UNITS}, found '2 h'"
    ),
    CLIENT.replace("mq1(1414)", "mq1:1414").rstrip(): (
        f"5:16: queue_manager.connections: expected {CONNECTIONS}, found 'mq1:1414'"
    ),
}


@pytest.mark.parametrize(("text", "messages"), MISTAKES.items())
def test_a_mistake_in_the_section_is_reported_with_its_position(text: str, messages: str, tmp_path: Path) -> None:
    assert mistakes_of(tmp_path, text) == messages.splitlines()


def test_a_password_in_the_file_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(CLIENT + "password: hunter2")
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    assert "hunter2" not in str(raised.value)
