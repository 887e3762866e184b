"""Each kind of mistake in a file: the text, and all reported lines."""

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.problems import ConfigurationError
from tests.helpers.configuration_mistakes import ADDRESS, DURATION_UNITS, MQ_NAME, SIZE_UNITS

CHANNEL_NAME = "a channel name of 1 to 20 of the characters A-Z a-z 0-9 . _ / %"
LOOPBACK = (
    "a loopback address (127.0.0.1, ::1 or localhost), because this channel accepts clients without a password (to accept"
    " clients of other machines, specify 'authentication: ...', or 'allow_anonymous_remote: true' in this channel)"
)
MAPPING = "a mapping (lines of 'key: value')"
LIST = "a list (lines that begin with '- ')"
PROTOCOLS = "a list of at least one of MQTTV5, MQTTV311 and MQTTV3, each at most once"
TYPES = "embedded or ibm"
FREE_PLACE = "an address and port where nothing else in this file listens"
KNOWN = (
    "a known key (queue_manager, channels, channel_authentication, transmission_queue, links, mappings, tables, pipelines,"
    " spark, control_socket, limits, password_cache, archive, log, audit_log, client_history, admin or traces)"
)
APPLICATIONS = "admin:\n  port: 1\n  applications:\n    "
LISTENER = "queue_manager:\n  listener:\n    "

VALUES = {
    # queue_manager
    "queue_manager: MQB1": f"1:16: queue_manager: expected {MAPPING}, found 'MQB1'",
    "queue_manager: {type: IBM}": f"1:23: queue_manager.type: expected {TYPES}, found 'IBM'",
    "queue_manager: {type: true}": f"1:23: queue_manager.type: expected {TYPES}, found true",
    "queue_manager: {type: ~, name: A B}": f"1:23: queue_manager.type: expected {TYPES}, found ~",
    "queue_manager: {name: QM 1}": f"1:23: queue_manager.name: expected {MQ_NAME}, found 'QM 1'",
    "queue_manager: {name: 1234}": f"1:23: queue_manager.name: expected {MQ_NAME}, in quotes, found 1234",
    "queue_manager: {data_directory: 7}": "1:33: queue_manager.data_directory: expected a path, found 7",
    r'queue_manager: {data_directory: "a\0"}': r"1:33: queue_manager.data_directory: expected a path, found 'a\x00'",
    r'queue_manager: {scripts: ["\uD800"]}': "1:27: expected characters of Unicode (\\U and eight digits), found the"
    " surrogate U+D800",
    "queue_manager: {scripts: a.mqsc}": f"1:26: queue_manager.scripts: expected {LIST}, found 'a.mqsc'",
    "queue_manager: {scripts: [a, 1]}": "1:30: queue_manager.scripts[1]: expected a path, found 1",
    LISTENER + "address: 0.0.0.0": (
        "3:14: queue_manager.listener.address: expected a loopback address (127.0.0.1, ::1 or localhost), because this"
        " listener accepts applications without a password (to accept other machines, write 'password_file: ...' or"
        " 'authentication: ...', or 'allow_anonymous_remote: true', in this listener), found '0.0.0.0'"
    ),
    LISTENER + "authentication: [{method: scram, file: f}]": (
        "3:31: queue_manager.listener.authentication[0].method: expected another method than scram, which is for MQTT"
        " clients, found 'scram'"
    ),
    LISTENER + "password_file: f\n    authentication: [{method: password, file: f}]": (
        "4:31: queue_manager.listener.authentication[0].method: expected no password method together with password_file,"
        " found 'password'"
    ),
    LISTENER + "host: x": (
        "3:5: queue_manager.listener.host: expected a known key (allow_anonymous_remote, password_file, authentication,"
        " address, port, tls, max_connections, max_connections_per_address or failed_connects), found 'host'"
    ),
    APPLICATIONS + "bad name: {mq_user: app}": (
        "4:5: admin.applications.'bad name': expected the name of an application: 1 to 20 letters, digits, '.', '_' or '-',"
        " found 'bad name'"
    ),
    APPLICATIONS
    + "app: {}": "4:10: admin.applications.app.mq_user: expected this key, which has no default, found nothing",
    APPLICATIONS + "app: {mq_user: app, call_timeout: 1 h}": (
        "4:39: admin.applications.app.call_timeout: expected a duration from 100 ms to 10 min (a number of seconds, or a"
        " number with ms, s, min, h or d), found '1 h'"
    ),
    APPLICATIONS + "a: {mq_user: a, requests: 60}\n    b: {mq_user: b, requests: 41}": (
        "4:5: admin.applications: expected applications with at most 100 `requests` together, not 101 (`requests` is 20 by"
        " default), found a mapping"
    ),
    'admin: {operators: ["a b"]}': "1:21: admin.operators[0]: expected a user name without blanks, found 'a b'",
    "queue_manager: {type: ibm, name: Q, mode: bindings}\nlimits: {waiting_full: refuse}": (
        "2:24: limits.waiting_full: expected dead-letter, end-session or drop-oldest, because IBM MQ refuses no"
        " publication for this (but for MAXDEPTH), found 'refuse'"
    ),
    "queue_manager: {c_programs: true}": (
        "1:17: queue_manager.c_programs: expected a known key (type, name, data_directory, listener, scripts, authorities,"
        " max_message_length or overlapping_subscriptions), found 'c_programs'"
    ),
    # channels
    "channels: {name: A}": f"1:11: channels: expected {LIST}, found a mapping",
    "channels:\n  - PLAIN": f"2:5: channels[0]: expected {MAPPING}, found 'PLAIN'",
    "channels:\n  -": f"2:4: channels[0]: expected {MAPPING}, found nothing",
    "channels:\n- port: mqtt": "2:9: channels[0].port: expected an integer from 0 to 65535, found 'mqtt'",
    "channels:\n- port: 01883": "2:9: channels[0].port: expected an integer from 0 to 65535, found '01883'",
    "channels:\n- port: 12:30": "2:9: channels[0].port: expected an integer from 0 to 65535, found '12:30'",
    "channels:\n- port: yes": "2:9: channels[0].port: expected an integer from 0 to 65535, found yes",
    "channels:\n- port:": "2:8: channels[0].port: expected an integer from 0 to 65535, found nothing",
    "channels:\n- name: NO": f"2:9: channels[0].name: expected {CHANNEL_NAME}, in quotes, found NO",
    "channels:\n- address: a b": f"2:12: channels[0].address: expected {ADDRESS}, found 'a b'",
    "channels:\n- address: 0.0.0.0": f"2:12: channels[0].address: expected {LOOPBACK}, found '0.0.0.0'",
    "channels:\n- allow_anonymous_remote: 1\n  address: 0.0.0.0": (
        "2:27: channels[0].allow_anonymous_remote: expected true or false, found 1"
    ),
    "channels:\n- protocols: MQTTV3": f"2:14: channels[0].protocols: expected {LIST}, found 'MQTTV3'",
    "channels:\n- protocols: []": f"2:14: channels[0].protocols: expected {PROTOCOLS}, found a list",
    "channels:\n- protocols: [MQTTV3, MQTTV3]": f"2:14: channels[0].protocols: expected {PROTOCOLS}, found a list",
    # the rest
    "transmission_queue: A*": f"1:21: transmission_queue: expected {MQ_NAME}, found 'A*'",
    "transmission_queue:": f"1:20: transmission_queue: expected {MQ_NAME}, found nothing",
    "limits: 5": f"1:9: limits: expected {MAPPING}, found 5",
    "limits: {pending_bytes: 1 TiB}": (
        f"1:25: limits.pending_bytes: expected a size from 1 B to 1 GiB {SIZE_UNITS}, found '1 TiB'"
    ),
    "limits: {retry_interval: .nan}": (
        f"1:26: limits.retry_interval: expected a duration from 1 ms to 24 h {DURATION_UNITS}, found '.nan'"
    ),
    "log: {level: loud}": "1:14: log.level: expected debug, info, warning or error, found 'loud'",
    "log: {level: off}": "1:14: log.level: expected debug, info, warning or error, found off",
}

KEYS = [
    (
        "limits:\n  in_fligth: 1",
        "2:3: limits.in_fligth: expected a known key (did you mean in_flight?), found 'in_fligth'",
    ),
    ("channels:\n- Port: 1", "2:3: channels[0].Port: expected a known key (did you mean port?), found 'Port'"),
    ("port: 1", f"1:1: port: expected {KNOWN}, found 'port'"),
    ("1: 1", f"1:1: 1: expected {KNOWN}, found '1'"),
    ('"\\eM": 1', f"1:1: '\\x1bM': expected {KNOWN}, found '\\x1bM'"),
    ('"a.b": 1', f"1:1: 'a.b': expected {KNOWN}, found 'a.b'"),
    ("log:\n  level: info\n  level: debug", "3:3: log.level: expected each key once, found it again, after line 2"),
    ("? [a]\n: 1", "1:3: expected a key that is text, found a list"),
    (
        "log: !!str info\n",
        f"1:6: expected a value without a tag, found !!str\n1:6: log: expected {MAPPING}, found 'info'",
    ),
    ("log: !!python/name:os.system {}", "1:6: expected a value without a tag, found !!python/name:os.system"),
]

CLASHES = {
    "channels:\n- name: A\n  port: 1\n- name: B\n  port: 2\n- name: A\n  port: 3": (
        "6:9: channels[2].name: expected a name that no other channel has, found 'A' again, which is the name of channels[0]"
    ),
    "channels:\n- port: 1\n- port: 2": (
        "3:3: channels[1].name: expected a name that no other channel has,"
        " found 'PLAIN.MQTT' again, which is the name of channels[0]"
    ),
    "channels:\n- name: A\n- name: B\n  port: 1883": (
        f"4:9: channels[1].port: expected {FREE_PLACE}, found 127.0.0.1:1883 again, where channels[0] listens"
    ),
    "channels:\n- {name: A, address: '::1'}\n- {name: B, address: '0:0::1', port: 1883}": (
        f"3:38: channels[1].port: expected {FREE_PLACE}, found [::1]:1883 again, where channels[0] listens"
    ),
    "channels:\n- port: 1414\nqueue_manager:\n  listener: {address: localhost}": (
        f"2:9: channels[0].port: expected {FREE_PLACE}, found 127.0.0.1:1414 again, where queue_manager.listener listens"
    ),
}

SYNTAX = [
    ("log:\n\tlevel: info", "2:1: expected spaces for indentation, found a tab"),
    ("log: a: b", "1:7: expected one 'key: value' to a line, indented like its neighbours, found another ':'"),
    ("log: {}\nlimits\n", "3:1: expected a key with ':' and a blank after it, found none"),
    ('log: "abc\n', "1:6: expected a closing quote to the one that opens here, found the end of the file"),
    (
        "log:\n  level: info\n format: text",
        "3:2: expected the same indentation as the lines before, found another, or text too many",
    ),
    ("channels: [a, b\nlog: x", "2:4: expected ',' or a closing ']', found neither"),
    ("log: {level: info", "1:18: expected ',' or a closing '}', found neither"),
    (
        "  log: {}\nlimits: {}",
        "2:1: expected the same indentation as the lines before, found another, or text too many",
    ),
    ("channels: - name: A", "1:11: expected '- ' at the beginning of a line only, found it after other text"),
    ("log: ]", "1:6: expected a value, found ]"),
    ("log: %x", "1:6: expected a value, in quotes if it begins with %, found %"),
    ("log: *x", "1:6: expected an alias whose anchor precedes it, found *x"),
    ('log: "\\q"', "1:8: expected an escape that YAML knows (or single quotes), found \\q"),
    ("log: &a {}\nlimits: &a {}", "2:9: expected each anchor once, found it again"),
    ("log: |x", "1:7: expected YAML, found invalid YAML: expected chomping or indentation indicators, but found 'x'"),
    ("log: {}\n---\nlog: {}", "2:1: expected one document in the file, found a second, after '---'"),
    ("- log", f"1:1: expected {MAPPING}, found a list"),
    ("hello", f"1:1: expected {MAPPING}, found 'hello'"),
    ('"\\ud83d\\ude00": 1', "1:1: expected characters of Unicode (\\U and eight digits), found the surrogate U+D83D"),
    (
        'links: {"\\uda8c": {}}',
        "1:9: expected characters of Unicode (\\U and eight digits), found the surrogate U+DA8C",
    ),
    ("log: \x01", "1:6: expected characters that can be printed, found U+0001"),
    ("log:\n  <<: 5", "2:7: expected a mapping, or a list of mappings, to merge, found 5"),
    (b"log:\n  \xc3\xa9: \xff", "2:6: expected text in UTF-8, found the byte 0xFF"),
    ("log: {}\n".encode("utf-16-le"), "1:2: expected characters that can be printed, found U+0000"),
]

BOMBS = [
    ("[" * 100_000, "1:33: expected at most 32 levels of nesting, found more"),
    ("log: [" + "a," * 10_000 + "]", "1:20001: expected at most 10000 values in the file, found more"),
    ("log: &a [*a]", "1:6: expected at most 32 levels of nesting, aliases written out, found more"),
    ("log: &a\n  <<: *a", "1:6: expected at most 32 levels of nesting, aliases written out, found more"),
    (
        "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 20)),
        "1:28: expected at most 10000 values in the file, aliases written out, found more",
    ),
    ("#" * (1024 * 1024 + 1), "expected a file of at most 1 MiB, found a longer one"),
]


@pytest.mark.parametrize(
    ("text", "messages"),
    [*VALUES.items(), *KEYS, *CLASHES.items(), *SYNTAX, *BOMBS],
    ids=lambda value: value[:100],  # one text has a megabyte
)
@pytest.mark.timeout(20)
def test_a_mistake_is_reported_with_its_position(
    text: str | bytes, messages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("bridge.yaml")
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    # A file as a whole is "bridge.yaml: ...", a place in it "bridge.yaml:1:2: ...".
    prefix = "bridge.yaml:" if messages[0].isdigit() else "bridge.yaml: "
    assert str(raised.value) == "\n".join(prefix + line for line in messages.splitlines())


def test_all_mistakes_of_a_file_are_reported_together_in_order(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("""\
log:
  level: loud
  level: info
channels:
  - port: mqtt
    nmae: A
    address: 0.0.0.0
  - name: PLAIN.MQTT
    protocols: [HTTP, MQTTV3]
limits: {in_flight: 0, pending_bytes: big}
""")
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    assert [(problem.line, problem.column, problem.key) for problem in raised.value.problems] == [
        (2, 10, "log.level"),
        (3, 3, "log.level"),
        (5, 11, "channels[0].port"),
        (6, 5, "channels[0].nmae"),
        (7, 14, "channels[0].address"),
        (8, 11, "channels[1].name"),
        (9, 17, "channels[1].protocols[0]"),
        (10, 21, "limits.in_flight"),
        (10, 39, "limits.pending_bytes"),
    ]
    assert {problem.file for problem in raised.value.problems} == {file}


def test_a_mistake_in_an_aliased_value_has_the_position_of_the_value(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("channels:\n- &a {name: A, backlog: none}\n- {<<: *a, name: B, port: 2}\n")
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    assert [(p.line, p.column, p.key) for p in raised.value.problems] == [
        (2, 25, "channels[0].backlog"),
        (2, 25, "channels[1].backlog"),
    ]
