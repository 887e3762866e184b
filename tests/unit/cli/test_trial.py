"""`mqbridge try`: the message that a mapping would put, or its publication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.failures import NOT_FOUND
from bridge.cli.options import Format, settings
from bridge.cli.output import print_records
from bridge.mapping.message_view import MessageView
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain

CONFIGURATION = """\
queue_manager: {name: QM1}
links: {hive: {host: broker.example.com}}
mappings:
  plant:
    from: {mqtt: 'plant/{line}/{metric...}'}
    to: {queue: 'PLANT.{line|upper}', queue_manager: QM2}
    filter: {qos: [1, 2]}
    attributes: {priority: 4, properties: {site: '{usr.site}'}}
  copy:
    from: {mqtt: 'copy/#'}
    to: {topic: '{topic}'}
    payload: json
    enabled: false
  bare: {from: {mqtt: 'bare/#'}, to: {queue: B}, attributes: {rfh2: false}}
  commands: {from: {queue: COMMANDS}, to: {mqtt: 'commands/{usr.device}', link: hive}, payload: text}
  far: {from: {mqtt: 'far/#', link: hive}, to: {queue: B}}
  exact: {from: {mqtt: 'exact/#', link: hive}, to: {queue: B}, guarantee: exactly-once}
  fast: {from: {mqtt: 'fast/#', link: hive}, to: {queue: B}, guarantee: at-most-once}
  ask: {from: {mqtt: ask}, to: {queue: Q, requests_queue: KEPT}, attributes: {reply_to_queue: R}}
  answer: {from: {queue: R, requests_queue: KEPT}, to: {mqtt: '{responseTopic}', link: hive}}
  fields:
    from: {mqtt: readings}
    to: {queue: 'PLANT.{$.id|upper}'}
    filter: {json: $.t}
    payload: {transform: {f: {expr: payload.t * 1.8 + 32}}}
  device: {from: {queue: D}, to: {mqtt: 'd/{$.id}'}}
  prices: {from: {topic: 'prices/{symbol}'}, to: {mqtt: 'p/{symbol}'}, filter: {min_size: 2}}
"""


@pytest.fixture
def attempt(invoke: Any, tmp_path: Path) -> Any:
    """Try a mapping of the configuration: `attempt("plant", "--topic", "t")`."""
    file = tmp_path / "bridge.yaml"
    file.write_text(CONFIGURATION)

    def call(*arguments: object, **options: Any) -> Any:
        return invoke("try", *arguments, "--config", file, **options)

    return call


PUBLISHED = ("--topic", "plant/l1/temp/in", "--payload", "21.5", "--qos", 1, "--property", "site=north")


def test_the_message_of_a_mapping_is_shown(attempt: Any) -> None:
    result = attempt("plant", *PUBLISHED, "--client-id", "dev-1", "--user", "operator")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "put to queue PLANT.L1 at queue manager QM2"
    assert lines[1:6] == ["MQMD", "Format MQHRF2", "Priority 4", "Persistence 1", "UserIdentifier operator"]
    assert {"folders.mqtt.clientId dev-1", "folders.mqtt.qos 1", "folders.mqps.Top plant/l1/temp/in"} <= set(lines)
    assert {"folders.usr.site north", "folders.mqbridge.hops QM1/plant"} <= set(lines)
    assert lines[-2:] == ["body (4 bytes)", "21.5"]


def test_a_user_name_too_long_for_mq_is_rejected(attempt: Any) -> None:
    result = attempt("plant", *PUBLISHED, "--user", "temperature-1")
    assert result.exit_code == 2 and "--user: the user name is longer than 12 bytes" in result.stderr


def test_a_request_and_its_answer(attempt: Any, tmp_path: Path) -> None:
    trial = attempt("ask", "--topic", "ask", "--payload", "?", "--response-topic", "to/me", "--correlation-data", "7")
    assert (
        trial.stdout.splitlines()[1] == "its Response Topic and Correlation Data are kept on queue KEPT for the reply"
    )
    header = encode_chain(
        (RFH2(folders=(Folder.build("mqtt", {"responseTopic": "to/me", "correlationData": "37"}),)),), b""
    )
    request_file = tmp_path / "kept.json"
    request_file.write_text(json.dumps(MessageView(MQMD(Format=b"MQHRF2"), header.data).json()))
    answered = attempt("answer", "--payload", "!", "--request", request_file, "--json")
    assert answered.exit_code == 0, answered.stderr
    view = json.loads(answered.stdout)
    assert (view["topic"], view["correlationData"], view["body"]) == ("to/me", "37", "!")
    steps = attempt("answer", "--payload", "!", "--request", request_file, "--steps").stderr
    assert steps.splitlines() == ["to.mqtt: to/me", "payload: !"]


def test_the_message_is_printed_as_json(attempt: Any) -> None:
    view = json.loads(attempt("plant", *PUBLISHED, "--json").stdout)
    assert view["destination"] == {"queue": "PLANT.L1", "queueManager": "QM2"}
    assert (view["md"]["Priority"], view["md"]["Persistence"], view["body"]) == (4, 1, "21.5")
    assert view["rfh2"][0]["folders"]["usr"] == {"site": "north"}
    assert (view["retain"], view["clear"], view["properties"]) == (False, False, {})


def test_a_retained_publication_of_a_topic_is_shown(attempt: Any) -> None:
    trial = attempt("copy", "--topic", "copy/a", "--payload", "1", "--retain")
    assert trial.stdout.splitlines()[:2] == [
        "published to topic copy/a",
        "it becomes the retained publication of that topic (MQPMO_RETAIN)",
    ]
    assert trial.stderr == "mapping copy is not enabled\n"
    cleared = attempt("copy", "--topic", "copy/a", "--payload", "", "--retain")
    assert cleared.stdout.splitlines()[1] == "it clears the retained publication of that topic"


def test_properties_are_shown_without_an_rfh2(attempt: Any) -> None:
    lines = [" ".join(line.split()) for line in attempt("bare", "--topic", "bare/a").stdout.splitlines()]
    assert lines[:2] == ["put to queue B", "message properties"]
    assert "mqtt.clientId mqbridge-try" in lines
    assert "MQRFH2" not in lines


@pytest.mark.parametrize(("options", "client_id"), [((), "hive"), (("--client-id", "dev-1"), "dev-1")])
def test_publications_of_a_link_have_its_name_as_client_identifier(
    options: tuple[str, ...], client_id: str, attempt: Any
) -> None:
    view = json.loads(attempt("far", "--topic", "far/a", "--json", *options).stdout)
    assert view["rfh2"][0]["folders"]["mqtt"]["clientId"] == client_id


@pytest.mark.parametrize(
    ("mapping", "published_qos", "qos", "persistence"),
    [("far", 2, 1, 1), ("far", 0, 0, 0), ("exact", 2, 2, 1), ("fast", 2, 0, 0)],
)
def test_publications_of_a_link_have_the_options_of_its_subscription(
    mapping: str, published_qos: int, qos: int, persistence: int, attempt: Any
) -> None:
    view = json.loads(attempt(mapping, "--topic", f"{mapping}/a", "--qos", published_qos, "--json").stdout)
    assert (view["rfh2"][0]["folders"]["mqtt"]["qos"], view["md"]["Persistence"]) == (qos, persistence)


def test_publications_to_a_link_have_the_qos_of_the_guarantee(attempt: Any) -> None:
    trial = attempt("commands", "--payload", "on", "--property", "device=d-1", "--json")
    assert trial.exit_code == 0, trial.stderr
    view = json.loads(trial.stdout)
    assert (view["topic"], view["qos"], view["properties"]["device"]) == ("commands/d-1", 1, "d-1")


ROUTES = """\
mappings:
  hot: {from: {mqtt: 'plant/{line}'}, to: {queue: HOT}, filter: {json: '$.temp > 30'}}
  cold: {from: {mqtt: 'plant/+'}, to: {queue: COLD}, filter: {json: '$.temp < 10'}}
  rest: {from: {mqtt: 'plant/#'}, to: {queue: REST}, otherwise: [hot, cold]}
  commands: {from: {queue: COMMANDS}, to: {mqtt: c}, filter: {min_size: 5}}
"""


@pytest.mark.parametrize(
    ("mapping", "arguments", "message"),
    [
        ("hot", ("--topic", "plant/a", "--payload", '{"temp": 20}'), "mapping rest does (otherwise)"),
        ("hot", ("--topic", "plant/a", "--payload", '{"temp": 5}'), "and this mapping discards it"),
        ("rest", ("--topic", "plant/a", "--payload", '{"temp": 40}'), "mapping hot in its otherwise accepts it"),
        ("commands", ("--payload", "1"), "the message goes to the dead-letter queue (filter.others)"),
    ],
)
def test_a_message_that_is_not_accepted_is_explained(
    mapping: str, arguments: tuple[str, ...], message: str, invoke: Any, tmp_path: Path
) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(ROUTES)
    result = invoke("try", mapping, *arguments, "--config", file)
    assert result.exit_code == NOT_FOUND and message in result.stderr, result.stderr
    accepted_attempt = invoke("try", "rest", "--topic", "plant/a", "--payload", '{"temp": 20}', "--config", file)
    assert accepted_attempt.exit_code == 0 and accepted_attempt.stdout.startswith("put to queue REST")


def test_the_payload_is_read_from_a_file(attempt: Any, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"\x00\xff")
    view = json.loads(attempt("bare", "--topic", "bare/a", "--payload-file", tmp_path / "payload", "--json").stdout)
    assert (view["body"], view["bodyEncoding"]) == ("AP8=", "base64")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ("plant", "--topic", "plant/l1", "--qos", 1),
            NOT_FOUND,
            "mapping plant does not take the message: topic plant/l1 does not match plant/{line}/{metric...}\n",
        ),
        (
            ("plant", "--topic", "plant/l1/x", "--qos", 0),
            NOT_FOUND,
            "mapping plant does not take the message: its filter does not accept it, and this mapping discards it\n",
        ),
        (
            ("plant", "--topic", "plant/l1/x", "--qos", 1),
            1,
            "mapping plant rejects the message: attributes.properties.site: '{usr.site}' cannot be filled: the message has"
            " no usr.site\n"
            "it would be dead-lettered with MQRC_PROPERTY_NOT_AVAILABLE (2471)\n",
        ),
        (
            ("prices", "--payload", "1", "--topic", "prices/X"),
            NOT_FOUND,
            "mapping prices does not take the message: its",
        ),
        (
            ("prices", "--payload", "12", "--topic", "price/X"),
            NOT_FOUND,
            "mapping prices does not take the message: its",
        ),
        (("plnt",), NOT_FOUND, "no mapping plnt in the configuration (did you mean plant?)\n"),
        (
            ("nothing",),
            NOT_FOUND,
            "no mapping nothing in the configuration (plant, copy, bare, commands, far, exact, fast, ask, answer,"
            " fields, device, prices)",
        ),
        (("plant",), 2, "mapping plant is a mapping to MQ: it requires --topic TOPIC, or --message FILE with a"),
        (
            ("plant", "--message", "f", "--qos", 1),
            2,
            "mapping plant is a mapping to MQ: other options than --topic are",
        ),
        (("plant", "--message", "f", "--payload", ""), 2, "mapping plant is a mapping to MQ: other options than"),
        (("plant", "--message", "f", "--expiry", 0), 2, "mapping plant is a mapping to MQ: other options than"),
        (("commands", "--payload", "1", "--expiry", 0), 2, "mapping commands is a mapping to MQTT: --qos, --retain,"),
        (("plant", "--topic", "a", "--format", ""), 2, "mapping plant is a mapping to MQ: --format, --ccsid and"),
        (("plant", "--topic", "a", "--ccsid", 37), 2, "mapping plant is a mapping to MQ: --format, --ccsid and"),
        (("plant", "--topic", "a", "--message", "missing"), 1, "missing: No such file or directory\n"),
        (("commands", "--message", "f", "--property", "a=b"), 2, "--property cannot be combined with --message"),
        (("commands", "--payload", "1", "--qos", 1), 2, "mapping commands is a mapping to MQTT: --qos, --retain,"),
        (("commands",), 2, "mapping commands is a mapping to MQTT: it requires --message FILE or --payload TEXT\n"),
        (("plant", "--topic", "a", "--payload", "a", "--payload-file", "b"), 2, "--payload and --payload-file exclude"),
        (("plant", "--topic", "a", "--property", "site"), 2, "--property: expected NAME=VALUE, found 'site'\n"),
        (("commands", "--message", "missing"), 1, "missing: No such file or directory\n"),
    ],
)
def test_a_missing_payload_is_reported(arguments: tuple[object, ...], status: int, message: str, attempt: Any) -> None:
    result = attempt(*arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith("mqbridge: error: " + message)


def test_a_configuration_is_required(invoke: Any) -> None:
    result = invoke("try", "plant", "--topic", "a")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--config" in result.stderr and "MQBRIDGE_CONFIG" in result.stderr


def message_file(directory: Path, *headers: Any, body: bytes = b"start", md: MQMD | None = None) -> Path:
    """Return a message as `mqbridge mq get --json` prints it."""
    format_, encoding, ccsid, data = encode_chain(headers, body)
    described = (
        MQMD(Format=format_, Encoding=encoding, CodedCharSetId=ccsid, Persistence=1) if headers else md or MQMD()
    )
    file = directory / "message.json"
    file.write_text(json.dumps(MessageView(described, data).json()))
    return file


DEVICE = RFH2(CodedCharSetId=1208, Format=b"MQSTR", folders=(Folder.build("usr", {"device": "dev-1", "n": 5}),))


def test_the_publication_of_a_mapping_is_shown(attempt: Any, tmp_path: Path) -> None:
    result = attempt("commands", "--message", message_file(tmp_path, DEVICE))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "published to MQTT topic commands/dev-1 of link hive"
    assert {"qos 2", "retain false", "hops QM1/commands", "properties.device dev-1", "properties.n 5"} <= set(lines)
    assert lines[-2:] == ["body (5 bytes)", "start"]


def test_the_publication_is_printed_as_json(attempt: Any, tmp_path: Path) -> None:
    result = attempt("commands", "--message", "-", "--json", input=message_file(tmp_path, DEVICE).read_bytes())
    assert json.loads(result.stdout) == {
        "topic": "commands/dev-1",
        "link": "hive",
        "qos": 2,
        "retain": False,
        "expiry": None,
        "responseTopic": "",
        "correlationData": "",
        "contentType": "",
        "payloadFormatIndicator": 1,
        "clientId": "",
        "properties": {"device": "dev-1", "n": "5"},
        "hops": "QM1/commands",
        "body": "start",
        "bodyEncoding": "utf-8",
    }


@pytest.mark.parametrize("format", ["json", "jsonl", "yaml"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_each_format_of_mq_get_is_accepted(
    format: str,
    count: int,
    attempt: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty output of jsonl and yaml is a message without a body."""
    message = json.loads(message_file(tmp_path, DEVICE).read_text())
    file = tmp_path / "messages"
    monkeypatch.setattr(settings, "output", Format(format))
    print_records([message] * count, name=lambda _: "")
    file.write_text(capsys.readouterr().out)
    result = attempt("commands", "--message", file)
    if count == 1:
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("published to MQTT topic commands/dev-1 of link hive")
    elif count == 2 or format == "json":
        assert result.exit_code == 2
        assert f"{file}: expected one message, found {count}\nhint: " in result.stderr
    else:
        assert "rejects the message" in result.stderr


def test_a_message_can_be_bytes(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(encode_chain([DEVICE], b"start").data)
    view = json.loads(attempt("commands", "--message", file, "--format", "MQHRF2", "--json").stdout)
    assert (view["topic"], view["body"]) == ("commands/dev-1", "start")


def test_bytes_have_a_character_set(attempt: Any, tmp_path: Path) -> None:
    header = RFH2(CodedCharSetId=500, Format=b"MQSTR", folders=(Folder.build("usr", {"device": "d"}),))
    view = json.loads(
        attempt("commands", "--message", message_file(tmp_path, header, body="grün".encode("cp500")), "--json").stdout
    )
    assert view["body"] == "grün"


def test_bytes_that_are_json_are_a_body(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_text('{"price": 5}')
    view = json.loads(attempt("prices", "--message", file, "--topic", "prices/IBM", "--json").stdout)
    assert (view["topic"], view["body"]) == ("p/IBM", '{"price": 5}')


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"md": {"Foo": 1}}, "unknown field `Foo` - at `$.md`"),
        ({"md": {"Priority": "4"}}, "Expected `int`, got `str` - at `$.md.Priority`"),
        ({"md": {"Priority": True}}, "Expected `int`, got `bool` - at `$.md.Priority`"),
        ({"md": {"Format": 5}}, "Expected `str`, got `int` - at `$.md.Format`"),
        ({"md": {"MsgId": "XY"}}, "non-hexadecimal number"),
        ({"rfh2": [{"folders": {"usr": "a"}}]}, "Expected `object | array`, got `str`"),
        ({"rfh2": [{"folders": {"a b": {"c": "d"}}}]}, "'a b'"),
        ({"body": 5}, "Expected `str`, got `int` - at `$.body`"),
        ({"body": "!", "bodyEncoding": "base64"}, "base64"),
        ({"data": "!"}, "base64"),
        ({"xqh": {"RemoteQName": "T"}}, "JSON does not show an MQXQH in full"),
    ],
)
def test_a_file_that_is_not_a_message_is_rejected(
    changed: dict[str, Any], message: str, attempt: Any, tmp_path: Path
) -> None:
    file = message_file(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    result = attempt("prices", "--message", file, "--topic", "prices/IBM")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"mqbridge: error: {file} is not a message: ") and message in result.stderr


def test_the_command_schema_prints_both_schemas(invoke: Any) -> None:
    configuration, mapping_file = invoke("schema"), invoke("schema", "--mapping-file")
    assert configuration.exit_code == mapping_file.exit_code == 0
    assert {"queue_manager", "mappings", "links"} <= set(json.loads(configuration.stdout)["properties"])
    assert set(json.loads(mapping_file.stdout)["properties"]) == {
        "mappings",
        "links",
        "pipelines",
        "standard",
        "tables",
    }


def test_check_reports_loops(invoke: Any, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(
        "mappings: {a: {from: {mqtt: 'a/#'}, to: {topic: b/x}}, b: {from: {mqtt: 'b/#'}, to: {topic: a/x}}}"
    )
    result = invoke("check", file)
    assert result.exit_code == 0
    (loop,) = [line for line in result.stdout.splitlines() if line.startswith("loop: ")]
    assert "a → b → a" in loop


def test_check_reports_mistakes_in_templates(invoke: Any, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("mappings: {a: {from: {mqtt: 'a/#'}, to: {queue: '{'}}}")
    result = invoke("check", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{file}:1:49: mappings.a.to.queue: expected a template")


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (
            ("fields", "--topic", "readings", "--payload", '{"id": "a", "t": 10}'),
            ["filter: accepts the message", "to.queue: PLANT.A", 'payload: {"f":50.0}'],
        ),
        (
            ("fields", "--topic", "readings", "--payload", '{"id": "a", "t": "x"}'),
            ["filter: accepts the message", "to.queue: PLANT.A"],
        ),
        (("fields", "--topic", "readings", "--payload", "{}"), ["filter: does not accept the message"]),
        (("fields", "--topic", "other", "--payload", "{}"), []),
        (("device", "--payload", '{"id": 7}'), ["to.mqtt: d/7", 'payload: {"id": 7}']),
        (("prices", "--topic", "prices/X", "--payload", "12"), [
            "{symbol}: X", "filter: accepts the message", "to.mqtt: p/X", "payload: 12",
        ]),
    ],
)  # fmt: skip
def test_the_value_after_each_step_is_shown(attempt: Any, arguments: tuple[str, ...], steps: list[str]) -> None:
    lines = attempt(*arguments, "--steps").stderr.splitlines()
    assert lines[: len(steps)] == steps
    assert all(line.startswith(("mqbridge: error: ", "it would be")) for line in lines[len(steps) :])


RECORD = """\
       01  READING.
           05  DEVICE  PIC X(4).
           05  CELSIUS PIC S9(3)V9 COMP-3.
"""


def test_the_document_of_a_record_is_a_step(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "reading.cpy").write_text(RECORD)
    file = tmp_path / "bridge.yaml"
    record = "type: record, copybook: reading.cpy, ccsid: 273"
    file.write_text(f"""\
mappings:
  there:
    from: {{mqtt: t}}
    to: {{queue: Q}}
    payload: {{{record}, drop: [$.x]}}
    attributes: {{rfh2: false, reply_to_queue: 'R.{{$.device}}', msg_id: '{{$.device}}'}}
  back: {{from: {{queue: Q}}, to: {{mqtt: 'b/{{$.device}}'}}, payload: {{{record}, transform: {{f: "{{$.celsius}}"}}}}}}
""")

    def steps(*arguments: str) -> list[str]:
        return str(invoke("try", *arguments, "--steps", "--config", file).stderr).splitlines()

    document = '{"device":"D7","celsius":-3.5}'
    assert steps("there", "--topic", "t", "--payload", document.replace("}", ',"x":1}')) == [
        "to.queue: Q",
        f"document for the record: {document}",
        "payload: 00000000  c4 f7 40 40 00 03 5d                             |..@@..]|",
        "attributes.msg_id: " + b"D7".hex().ljust(48, "0"),
        "attributes.reply_to_queue: R.D7",
    ]
    assert steps("back", "--payload", document) == [
        f"document of the record: {document}",
        "to.mqtt: b/D7",
        'payload: {"f":-3.5}',
    ]


# Samples ---------------------------------------------------------------------------------------------------------------

SAMPLES = b"""{"id": "a", "t": 1}
{"id": "b", "t": 2.50}
{"id": "a", "t": 3}
{"id": "a"}
no json
{"id": "a b", "t": 1}
{"t": 1}
{"id": "a", "t": "warm"}
"""


def test_each_line_of_a_file_is_a_sample(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_bytes(SAMPLES)
    arguments = ("fields", "--topic", "readings", "--samples", file, "--each-line")
    result = attempt(*arguments)
    assert result.exit_code == 1
    first, *lines = result.stdout.splitlines()
    assert first == "8 samples: 3 mapped, 2 not taken, 3 rejected"
    assert [line.split() for line in lines[:2]] == [["2", "to", "queue", "PLANT.A"], ["1", "to", "queue", "PLANT.B"]]
    beginnings = [
        "sample 4 not taken: its filter does not accept it",
        "sample 5 not taken: its filter does not accept it",
        "sample 6 rejected (MQRC_OBJECT_NAME_ERROR): ",
        "sample 7 rejected (MQRC_PROPERTY_NOT_AVAILABLE): ",
        "sample 8 rejected (MQRC_FORMAT_ERROR): payload.transform.f.expr: ",
    ]
    for line, beginning in zip(lines[2:], beginnings, strict=True):
        assert line.startswith(beginning)
    summary = json.loads(attempt(*arguments, "--json").stdout)
    assert (summary["samples"], summary["mapped"], summary["notTaken"], summary["rejected"]) == (8, 3, 2, 3)
    assert summary["destinations"] == {"queue PLANT.A": 2, "queue PLANT.B": 1}
    assert summary["failures"][2]["number"] == 6


def test_samples_without_a_failure_have_exit_status_0(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_bytes(b"".join(SAMPLES.splitlines(keepends=True)[:4]))
    result = attempt("fields", "--topic", "readings", "--samples", file, "--each-line")
    assert result.exit_code == 0
    assert result.stdout.startswith("4 samples: 3 mapped, 1 not taken, 0 rejected\n")


def test_samples_can_be_messages(attempt: Any, tmp_path: Path) -> None:
    bodies, messages = tmp_path / "bodies", tmp_path / "messages"
    bodies.write_bytes(SAMPLES)
    result = attempt("device", "--samples", bodies, "--each-line")
    assert result.stdout.startswith("8 samples: 6 mapped, 0 not taken, 2 rejected\n")
    messages.write_text("".join(f'{{"md": {{}}, "body": "{{\\"id\\": {number}}}"}}\n' for number in range(3)))
    result = attempt("device", "--samples", messages)
    assert result.stdout.splitlines()[0] == "3 samples: 3 mapped, 0 not taken, 0 rejected"
    assert "1 to topic d/2" in result.stdout


def published(topic: str, body: str) -> str:
    """Return a publication as `mqbridge mq get --json` prints it."""
    header = {"folders": {"mqps": {"Top": topic}, "mqtt": {"clientId": "d7", "qos": "1"}}}
    return json.dumps({"md": {"Format": "MQHRF2"}, "rfh2": [header], "body": body}) + "\n"


def test_publications_are_read_from_files(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "message.json"
    file.write_text(published("readings", '{"id": "a", "t": 1}'))
    result = attempt("fields", "--message", file)
    assert result.stdout.startswith("put to queue PLANT.A\n") and "folders.mqtt.clientId d7" in result.stdout
    other = attempt("fields", "--message", file, "--topic", "other")
    assert (other.exit_code, other.stderr) == (
        NOT_FOUND,
        "mqbridge: error: mapping fields does not take the message: topic other does not match readings\n",
    )
    file.write_text("".join(published("readings", line) for line in ('{"id": "a", "t": 1}', '{"id": "b", "t": "x"}')))
    result = attempt("fields", "--samples", file)
    assert result.exit_code == 1
    assert result.stdout.startswith("2 samples: 1 mapped, 0 not taken, 1 rejected\n")
    file.write_bytes(b"21.5")
    result = attempt("fields", "--message", file)
    assert result.exit_code == NOT_FOUND and "is not a publication, because it contains no topic" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("fields", "--topic", "t", "--samples", "x"), "--topic with --samples requires --each-line"),
        (("fields", "--topic", "t", "--each-line"), "--each-line requires --samples"),
        (("fields", "--topic", "t", "--samples", "x", "--payload", "y"), "cannot be combined"),
        (("device", "--message", "m", "--samples", "x"), "cannot be combined"),
    ],
)
def test_wrong_usage_of_samples(attempt: Any, arguments: tuple[str, ...], why: str) -> None:
    result = attempt(*arguments)
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_file_without_samples_is_an_error(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "samples"
    file.write_bytes(b"")
    result = attempt("device", "--samples", file, "--each-line")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "contains no message" in result.stderr


def test_only_the_first_failures_are_listed(attempt: Any, tmp_path: Path) -> None:
    file = tmp_path / "samples"
    file.write_text("{}\n" * 150)
    lines = attempt("device", "--samples", file, "--each-line").stdout.splitlines()
    assert len(lines) == 102
    assert lines[-1] == "and 50 more"
