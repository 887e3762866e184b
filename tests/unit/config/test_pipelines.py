"""Pipelines in the configuration file: valid options, reported mistakes, and descriptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from bridge.config.document import Collection, load, place_in
from bridge.config.pipeline import PipelineConfig
from bridge.config.problems import ConfigurationError

ROOT = Path(__file__).parents[3]
#: Required options of a pipeline.
REST = "from: {mq: {queue: Q}}, select: SELECT 1, to: {mq: {queue: R}}"


def written(directory: Path, text: str, name: str = "bridge.yaml") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def pipeline(directory: Path, text: str) -> PipelineConfig:
    return load(written(directory, f"pipelines: {{a: {{{text}}}}}")).pipelines["a"]


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("5 seconds", 5.0),
        ("1 second", 1.0),
        ("250 milliseconds", 0.25),
        ("2 minutes", 120.0),
        ("1 hour", 3600.0),
        ("500 ms", 0.5),
        ("3", 3.0),
        ("0", 0.0),
        ("availableNow", "availableNow"),
    ],
)
def test_triggers_have_several_notations(trigger: str, expected: float | str, tmp_path: Path) -> None:
    assert pipeline(tmp_path, f"{REST}, trigger: {trigger}").trigger == expected


MISTAKES = {
    "from: {}, select: S, to: {mq: {}}": "exactly one of mqtt:, mq: and archive:",
    "from: {mqtt: a, archive: b}, select: S, to: {mq: {}}": "exactly one of mqtt:, mq: and archive:",
    "from: {queue: Q}, select: S, to: {mq: {}}": "mq: {queue: ...}",
    "from: {mq: {queue: Q, topic: t}}, select: S, to: {mq: {}}": "exactly one of queue: and topic:",
    "from: {mq: {queue: Q}, link: l}, select: S, to: {mq: {}}": "no link, which belongs to mqtt:",
    "from: {mq: {queue: Q}}, select: S, to: {}": "one or more of mq:, mqtt:, archive: and format:",
    "from: {mq: {queue: Q}}, select: S, to: {archive: a, path: p}": "to.path: expected no path, which belongs to format:",
    f"{REST[:-1]}, archive: a, compact: 1 h}}": "to.compact: expected no compact, because pipelines no longer merge small",
    "from: {mq: {queue: Q}}, select: S, to: {mq: {}, partitionBy: [a]}": "no partitionBy, which belongs to format:",
    "from: {mq: {queue: Q}}, select: S, to: {format: 'a b'}": "the name of a format, such as jdbc",
    "from: {mq: {queue: Q}}, select: S, to: {format: jdbc, options: {url: u, password: p}}": (
        "to.options.password: expected no secret in this file (name a file that has it under secrets:)"
    ),
    "from: {mq: {queue: Q}}, select: S, to: {format: jdbc, options: {user: u}, secrets: {user: f}}": (
        "to.secrets.user: expected an option once, in options or in secrets"
    ),
    "from: {mq: {queue: Q}}, select: S, to: {mq: {queue: a, topic: b}}": "one of queue: and topic:, or neither",
    "from: {mq: {queue: Q}}, select: S, to: {archive: a, qos: 1}": "no qos, which belongs to mqtt:",
    "from: {mq: {queue: Q}}, select: ' ', to: {mq: {}}": "a SELECT of Spark SQL",
    "from: {mq: {queue: Q}}, select: S": "pipelines.a.to: expected the destination: to: (or mapping:, which specifies it)",
    "from: {mq: {queue: Q}}, mapping: m, to: {archive: a}": "no to: with mapping:, which specifies the destination",
    "from: {mq: {queue: Q}}, mapping: m": "the name of a mapping (there is none)",
    "from: {mq: {queue: Q}}, select: S, to: {mq: {persistence: yes}}": "not-persistent, persistent or as-queue",
    f"{REST}, trigger: soon": "availableNow, or a duration such as 5 seconds, 500 ms or 1 min",
    f"{REST}, trigger: 2 days": "availableNow, or a duration",
    f"{REST}, tables: {{input: a.csv}}": "a name for SQL (not input)",
    f"{REST}, tables: {{t: a.txt}}": "a path that ends with .csv, .json or .parquet",
    f"{REST}, schema: {{temp: number}}": "string, boolean, tinyint",
    f"{REST}, schema: {{'a b': int}}": "a field, such as temp or a.b[0]",
    f"{REST}, schema: {{a: int}}, payload: text": "no schema, because payload is not json",
    f"{REST}, changes: {{key: []}}": "at least one column",
    f"{REST}, changes: {{key: [a], deadband: -1}}": "a number of at least 0",
    "from: {archive: s3a://b/x}, select: S, to: {mq: {}}": "from.archive: expected a path of this machine, because s3a://",
    f"{REST}, tables: {{t: hdfs://n/t.csv}}": "tables.t: expected a path of this machine, because hdfs:// is not",
    f"{REST}, dead_letters: {{archive: file:///x}}": "dead_letters.archive: expected a path of this machine",
    f"{REST}, checkpoint: gs://x/y": "checkpoint: expected a path of this machine",
    "from: {mq: {queue: Q}}, select: S, to: {mq: {queue: Q}}": "to.mq.queue: expected another queue than the one that it",
    f"{REST}, dead_letters: {{queue: Q}}": "dead_letters.queue: expected another queue than the one that it reads",
    "from: {mq: {topic: t}}, select: S, to: {mq: {topic: t}}": "to.mq.topic: expected another topic than the one that it",
    "from: {archive: a}, select: S, to: {archive: a}": "to.archive: expected another directory than the one that it reads",
    f"{REST}, watermark: {{column: ts}}": "watermark.delay: expected this key, which has no default",
    f"{REST}, watermark: {{column: ts, delay: soon}}": "watermark.delay: expected a duration",
    f"{REST}, watermark: {{ts: 10 s}}": "watermark.ts: expected a known key (column or delay)",
    f"{REST}, watermark: late": "watermark: expected a duration",
    f"{REST}, dead_letters: {{queue: D, archive: a}}": "dead_letters: expected one of queue: and archive:",
    f"{REST}, dead_letters: {{topic: t}}": "dead_letters.topic: expected a known key",
    f"{REST}, late: {{window: 0, mq: {{queue: Q}}}}": "late.mq.queue: expected another queue than the one that it reads",
    f"{REST}, late: {{queue: L}}": "late.queue: expected mq: {queue: ...}",
    f"{REST}, late: {{window: 0, mq: {{queue: L}}, archive: a}}": "late: expected exactly one of mq: and archive:",
    f"{REST}, late: {{window: 0, mq: {{}}}}": "late.mq: expected a queue or a topic, because the columns contain",
    f"{REST}, late: {{window: 0, archive: a, compact: 1 h}}": "late.compact: expected a known key",
    f"{REST}, late: {{archive: a}}": "late.window: expected this key, which has no default",
    "from: {mqtt: a, link: l}, select: S, to: {mq: {}}": "the name of a link",
    "from: {archive: a, options: {partitions: 2}}, select: S, to: {mq: {}}": "no options, which belong to mq: and mqtt:",
    "from: {mq: {queue: Q}, options: {max_messages_per_trigger: 2}}, select: S, to: {mq: {}}": (
        "no maxMessagesPerTrigger, because the key batch of the file specifies it"
    ),
    "from: {mqtt: a, options: {host: b}}, select: S, to: {mq: {}}": "no host, because the key links of the file specifies it",
    "from: {mqtt: a, options: {qos: [1]}}, select: S, to: {mq: {}}": "text, a number, or true or false",
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.items())
def test_a_mistake_in_a_pipeline_is_reported(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        pipeline(tmp_path, text)
    assert expected in str(raised.value) and ":1:" in str(raised.value)


def test_sources_have_their_options(tmp_path: Path) -> None:
    source_options = "{partitions: 2, embed: no, maxBytesPerTrigger: 1 MiB}"
    options = pipeline(
        tmp_path, f"from: {{mq: {{queue: Q}}, options: {source_options}}}, select: S, to: {{mq: }}"
    ).source.options
    assert options == {"partitions": "2", "embed": "false", "maxBytesPerTrigger": "1 MiB"}


def test_a_session_belongs_to_one_pipeline(tmp_path: Path) -> None:
    text = """
links: {l: {host: h}, m: {host: h, port: 1884}}
pipelines:
  a: {from: {mqtt: x, link: l, options: {clientId: me}}, select: S, to: {mq: {queue: R}}}
  b: {from: {mqtt: x, link: m, options: {clientId: me}}, select: S, to: {mq: {queue: R}}}
  c: {from: {mqtt: y, link: l, options: {client_id: me}}, select: S, to: {mq: {queue: R}}}
"""
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, text))
    message = (
        "expected a client identifier that no other pipeline has, found 'me' again, with which pipeline a connects"
    )
    (problem,) = raised.value.problems
    assert problem.key == "pipelines.c.from.options.client_id" and message in str(problem)


SPARK_MISTAKES = [
    ("master: spark", "local, local[N], spark://host:port, yarn or k8s://..."),
    ("conf: {executor.memory: 2g}", "the name of a setting of Spark, which begins with spark."),
    ("conf: {spark.executor.cores: [2]}", "text, a number, or true or false"),
    ("conf: {spark.hadoop.fs.s3a.secret.key: x}", "no secret in this file"),
    ("conf: {spark.ssl.keyStorePassword: x}", "no secret in this file"),
    ("packages: [delta]", "group:artifact:version"),
    ("listener: host:1414", "host(port)"),
    ("user: spark", "a file whose first line is the password of user"),
    ("password_file: p", "the name of the user whose password it is"),
]


@pytest.mark.parametrize(("text", "expected"), SPARK_MISTAKES)
def test_mistakes_in_the_section_spark_are_reported(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, f"spark: {{{text}}}"))
    assert expected in str(raised.value) and "bridge.yaml:1:" in str(raised.value)


def test_the_section_spark_has_the_settings_of_the_session(tmp_path: Path) -> None:
    text = """
spark:
  master: spark://a:7077
  conf: {spark.executor.cores: 2, spark.speculation: false, spark.executor.memory: 2g, spark.ssl.keyStore.path: /k}
  packages: ["io.delta:delta-spark_4.1_2.13:4.1.0"]
  jars: [driver.jar]
  listener: gateway(1414)
  user: spark
  password_file: secret
  shared: [/mnt/plant]
"""
    configuration = load(written(tmp_path, text))
    conf = configuration.spark.conf
    assert (conf["spark.executor.cores"], conf["spark.speculation"]) == ("2", "false")
    assert configuration.spark.jars == [tmp_path / "driver.jar"]
    assert (configuration.spark.listener, configuration.spark.user) == ("gateway(1414)", "spark")
    assert configuration.spark.password_file == tmp_path / "secret"
    assert configuration.spark.shared == [Path("/mnt/plant")]


def test_mistakes_that_depend_on_other_sections_are_reported(tmp_path: Path) -> None:
    text = f"""
queue_manager: {{type: ibm, name: Q, channel: C, connections: a(1)}}
links: {{l: {{host: h, client_id: me}}}}
pipelines:
  a: {{{REST}}}
  b: {{from: {{mqtt: x, link: l}}, select: S, to: {{mq: {{queue: R}}}}, checkpoint: c}}
  c: {{{REST}, checkpoint: c}}
"""
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, text))
    message = str(raised.value)
    assert "pipelines.a.checkpoint: expected a directory, because IBM MQ has no data directory here" in message
    assert "pipelines.b.from.link: expected a link whose client_id has {mapping} in it" in message
    assert "pipelines.c.checkpoint: expected a directory that no other pipeline has, found 'c' again" in message


def test_pipelines_cannot_read_the_same_queue(tmp_path: Path) -> None:
    two = f"{{{REST}}}"
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, f"pipelines:\n  a: {two}\n  b: {two}"))
    (message,) = str(raised.value).splitlines()
    assert (
        "bridge.yaml:3:26: pipelines.b.from.mq.queue: expected a queue that no other enabled pipeline reads" in message
    )
    assert message.endswith("found 'Q' again, which pipeline a reads")
    load(written(tmp_path, f"pipelines:\n  a: {two}\n  b: {two[:-1]}, enabled: no}}"))


#: (the mapping, in a separate file; `from` of the pipeline; the reported text, and its file)
MAPPINGS = [
    (
        "from: {mqtt: a}, to: {queue: Q}",
        "mqtt: a",
        "m.yaml:1:15: mappings.m.enabled: expected false, because pipeline a",
    ),
    ("enabled: true, from: {mqtt: a}, to: {queue: Q}", "mqtt: a", "m.yaml:1:25: mappings.m.enabled: expected false"),
    (
        "enabled: false, from: {mqtt: a}, to: {queue: Q}",
        "mq: {queue: R}",
        "bridge.yaml:2:50: pipelines.a.mapping: expected a mapping from MQ to MQTT, because the pipeline reads mq:",
    ),
    (
        "enabled: false, from: {queue: Q}, to: {mqtt: a}",
        "mqtt: a",
        "bridge.yaml:2:43: pipelines.a.mapping: expected a mapping from MQTT to MQ, because the pipeline reads mqtt:",
    ),
    (
        "enabled: false, from: {queue: Q, requests_queue: R}, to: {mqtt: a}",
        "mq: {queue: R}",
        "pipelines.a.mapping: expected a mapping without from.requests_queue",
    ),
    (
        "enabled: false, from: {queue: Q}, to: {mqtt: a}, filter: {max_size: 1}",
        "mq: {queue: R}",
        "pipelines.a.mapping: expected a mapping whose filter has others: discard",
    ),
]


@pytest.mark.parametrize(("mapping", "source", "expected"), MAPPINGS)
def test_a_mapping_that_a_pipeline_cannot_use_is_rejected(
    mapping: str, source: str, expected: str, tmp_path: Path
) -> None:
    written(tmp_path, f"mappings: {{m: {{{mapping}}}}}", "m.yaml")
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, f"mappings: [m.yaml]\npipelines: {{a: {{from: {{{source}}}, mapping: m}}}}"))
    assert expected in str(raised.value) and len(raised.value.problems) == 1


@pytest.mark.parametrize(
    ("source", "mapping"),
    [
        ("mqtt: a", "from: {mqtt: 'a/{b}'}, to: {queue: '{b}'}, filter: {qos: 1}"),
        ("archive: a", "from: {mqtt: a}, to: {topic: b}"),
        ("mq: {queue: Q}", "from: {topic: a}, to: {mqtt: a}, filter: {qos: 1}"),
        ("mq: {topic: a}", "from: {queue: R}, to: {mqtt: a}, filter: {qos: 1, others: discard}"),
    ],
)
def test_a_mapping_determines_the_destination_of_rows(source: str, mapping: str, tmp_path: Path) -> None:
    text = f"mappings: {{m: {{enabled: false, {mapping}}}}}\npipelines:"
    configuration = load(written(tmp_path, f"{text}\n  a: {{from: {{{source}}}, mapping: m, to: }}"))
    config = configuration.pipelines["a"]
    assert config.destination is None and config.payload == "bytes" and config.select is None
    assert (config.mapping, config.trigger) == ("m", 1.0)
    text += f"\n  a: {{from: {{{source}}}, mapping: m, select: S}}"
    assert load(written(tmp_path, text)).pipelines["a"].payload == "json"


def test_paths_of_pipelines_in_separate_files_are_relative_to_them(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    flow = "{from: {archive: in}, select: S, to: {archive: out}, tables: {t: t.csv}, checkpoint: c,"
    flow += " dead_letters: {archive: d}, late: {archive: l, window: 0}}"
    written(tmp_path / "flows", f"pipelines: {{one: {flow}}}", "one.yaml")
    pipelines = load(written(tmp_path, f"pipelines: [flows, {{two: {{{REST}}}}}]")).pipelines
    assert list(pipelines) == ["one", "two"]
    paths = (
        pipelines["one"].source.archive,
        pipelines["one"].destination.archive,
        pipelines["one"].tables["t"],
        pipelines["one"].checkpoint,
    )
    assert paths == tuple(tmp_path / "flows" / name for name in ("in", "out", "t.csv", "c"))
    assert pipelines["one"].dead_letters.archive == tmp_path / "flows" / "d"
    assert pipelines["one"].late is not None and pipelines["one"].late.archive == tmp_path / "flows" / "l"


def test_a_url_scheme_is_rejected_in_separate_files_too(tmp_path: Path) -> None:
    written(tmp_path, "pipelines: {one: {from: {archive: in}, select: S, to: {archive: 's3a://b/x'}}}", "one.yaml")
    with pytest.raises(ConfigurationError, match=r"one\.yaml:1:\d+: pipelines\.one\.to\.archive: expected a path of"):
        load(written(tmp_path, "pipelines: [one.yaml]"))


def test_a_missing_pipeline_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, "pipelines: [nowhere]"))
    assert "pipelines[0]: expected the path of a pipeline file, or of a directory of such" in str(raised.value)


def test_the_example_in_the_shipped_configuration_has_every_option(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "bridge.yaml").read_text(encoding="utf-8")
    (example,) = re.findall(r"^##  pipelines:\n(?:##    .*\n)+", text, re.M)
    (example_pipeline,) = load(written(tmp_path, re.sub("^##  ", "", example, flags=re.M))).pipelines.values()
    sections = [
        example_pipeline,
        example_pipeline.source,
        example_pipeline.destination,
        example_pipeline.destination.mq,
    ]
    assert [
        set(type(section).model_fields) - section.model_fields_set - {"mq", "archive"}
        for section in sections
        if section
    ] == [set()] * 4
    minimal = {
        "from": {"mqtt": example_pipeline.source.mqtt},
        "to": example_pipeline.destination,
        "select": example_pipeline.select,
        "schema": example_pipeline.fields,
    }
    assert example_pipeline == PipelineConfig.model_validate(minimal)


#: One text in each notation of YAML, and the position of FOO.
WAYS = [
    ("select: |\n  SELECT a,\n    FOO(b)\n  FROM input\n", (3, 5)),
    ("select: >-  # folded\n    SELECT a,\n      FOO(b)\n    FROM input\n", (3, 7)),
    ("select: SELECT a,\n  FOO(b)\n  FROM input\n", (2, 3)),
    ("select: SELECT a, FOO(b) FROM input\n", (1, 19)),
    ("select: 'SELECT a,\n  FOO(b) FROM input'\n", (2, 3)),
    ('select: "SELECT a,\\n  FOO(b)\\nFROM input"\n', (1, 23)),
    ('{"select": "SELECT a, \\\n   FOO(b) FROM input"}', (2, 4)),
]


@pytest.mark.parametrize(("text", "place"), WAYS)
def test_a_character_in_a_text_has_its_position(text: str, place: tuple[int, int]) -> None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    node = root.value[0][1]
    assert place_in(text, node, node.value.index("FOO")) == place
    line, column = place_in(text, node, len(node.value))
    assert text.splitlines()[line - 1][: column - 1].endswith("input")


def test_quotes_and_escapes_count_as_written() -> None:
    for text, column in (("a: 'x ''y'' z'", 13), ('a: "\\"x\\" \\u0041 z"', 18)):
        node = yaml.compose(text, Loader=yaml.SafeLoader).value[0][1]
        assert place_in(text, node, node.value.index("z")) == (1, column)


def test_a_mistake_in_a_text_has_its_position(tmp_path: Path) -> None:
    file = written(tmp_path, "pipelines:\n  a:\n    select: |\n      SELECT x\n      FROM nowhere\n")
    problem = Collection(file).text_problem(("pipelines", "a", "select"), 14, "a table", "'nowhere'")
    assert str(problem) == f"{file}:5:12: pipelines.a.select: expected a table, found 'nowhere'"
