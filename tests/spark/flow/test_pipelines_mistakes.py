"""Mistakes that Spark finds in a pipeline before it starts: what is told, and where in the file."""

from __future__ import annotations

import pytest

from bridge.cli.failures import Failure
from bridge.cli.pipeline import check_all
from bridge.config import load
from bridge.spark.flow.environment import environment_of
from bridge.spark.flow.mistake import Mistake
from tests.spark.flow.conftest import Bench

QUEUE = "from: {mq: {queue: Q}}"

#: (pipeline; keys below its name; what stands at the place, None: it has none; words of the sentence)
MISTAKES = [
    (f"{QUEUE}, select: SELECT nowhere FROM input, to: {{mq: {{queue: R}}}}", "select", "nowhere", "cannot be resolved"),
    (f"{QUEUE}, select: SELECT body FROM there, to: {{mq: {{queue: R}}}}", "select", "there", "cannot be found"),
    (f"{QUEUE}, select: SELECT body FORM input, to: {{mq: {{queue: R}}}}", "select", "input", "Syntax error"),
    (f"{QUEUE}, select: SELECT nofun(body) FROM input, to: {{mq: {{queue: R}}}}", "select", "nofun", "nofun"),
    (f"{QUEUE}, select: CREATE TABLE t AS SELECT 1, to: {{mq: {{queue: R}}}}", "select", "CREATE", "Syntax error"),
    (f"{QUEUE}, select: SELECT body FROM input; SELECT 1, to: {{mq: {{queue: R}}}}", "select", ";", "Syntax error"),
    (f"{QUEUE}, select: SELECT 1 AS body, to: {{mq: {{queue: R}}}}", "select", None, "a SELECT that reads the table input"),
    (f"{QUEUE}, select: 'SELECT body, md AS body FROM input', to: {{mq: {{queue: R}}}}", "select", None, "different names"),
    (f"{QUEUE}, select: 'SELECT body, 1 AS n FROM input', to: {{mq: {{queue: R}}}}", "select", None, "only columns of"),
    (f"{QUEUE}, select: SELECT body FROM input ORDER BY put_time, to: {{mq: {{queue: R}}}}", "select", None, "Sorting"),
    (
        f"{QUEUE}, select: 'SELECT queue, count(*) AS n FROM input GROUP BY queue', to: {{mq: {{queue: R}}}}",
        "select",
        None,
        "append",
    ),
    (f"{QUEUE}, select: SELECT body FROM input, to: {{mq: {{}}}}", "to.mq", None, "a column that select makes (body)"),
    (f"{QUEUE}, select: SELECT body FROM input, to: {{mqtt: 'a/{{b}}'}}", "to.mqtt", None, "a column that select makes"),
    (f"{QUEUE}, select: SELECT body FROM input, to: {{mqtt: 'a/{{body|upper}}'}}", "to", None, "filter"),
    (f"{QUEUE}, select: 'SELECT body, 1 AS queue FROM input', to: {{mq: {{}}}}", "to", None, "column queue: expected string"),
    (f"{QUEUE}, select: SELECT body FROM input, to: {{mq: {{}}}}, changes: {{key: [a]}}", "changes.key.0", None, "body"),
    (f"{QUEUE}, tables: {{t: t.csv}}, select: SELECT body FROM input, to: {{mq: {{queue: R}}}}", "tables.t", None, "exist"),
    ("from: {archive: none}, select: SELECT * FROM input, to: {mq: {queue: R}}", "from.archive", None, "that is there"),
    (f"{QUEUE}, select: SELECT md FROM input, mapping: out", "select", None, "column body or payload is missing"),
    (f"{QUEUE}, select: 'SELECT body, 1 AS n FROM input', mapping: out", "select", None, "column n is none that a mapping"),
    (f"{QUEUE}, select: \"SELECT body, 'x' AS md FROM input\", mapping: out", "select", None, "md: expected a struct"),
    ("from: {mqtt: a}, select: SELECT payload FROM input, mapping: m", "select", None, "column topic is missing"),
    ("from: {mqtt: a}, select: 'SELECT topic, body, 1L AS qos FROM input', mapping: m", "select", None, "expected int"),
    ("from: {mqtt: 'a/#/b'}, select: SELECT body FROM input, to: {mq: {queue: R}}", "from.mqtt", None, "a topic filter"),
    ("from: {mqtt: $share/g/a}, select: SELECT 1, to: {mq: {}}", "from.mqtt", None, "no shared subscription at the bridge"),
]


@pytest.mark.parametrize(("text", "where", "at", "words"), MISTAKES)
def test_mistake(text: str, where: str, at: str | None, words: str, bench: Bench) -> None:
    mappings = "out: {enabled: false, from: {queue: Q}, to: {mqtt: a}}, m: {enabled: false, from: {mqtt: a}, to: {queue: Q}}"
    bench.write("{mappings: {$mappings}, pipelines: {a: {$written}}}", mappings=mappings, written=text)
    with pytest.raises(Mistake) as raised:
        bench.plan("a")
    mistake = raised.value
    assert ".".join(map(str, mistake.location)) == where and words in str(mistake)
    if at is not None:
        select = text.partition("select: ")[2]
        assert mistake.position is not None and select[mistake.position :].startswith(at)
    assert "\n" not in str(mistake) and "+-" not in str(mistake)


def test_they_are_told_with_their_places_in_the_file(bench: Bench) -> None:
    file = bench.write(
        """
        pipelines:
          one:
            from: {mq: {queue: Q}}
            select: |
              SELECT body,
                     put_tim
              FROM input
            to: {mq: {queue: R}}
          two:
            from: {mq: {queue: P}}
            tables: {t: nowhere.csv}
            select: SELECT body FROM input
            to: {mq: {queue: R}}
        """
    )
    configuration = load(file)
    environment = environment_of(configuration, file, bench.queues.directory)
    with pytest.raises(Failure) as raised:
        check_all(bench.spark, file, configuration.pipelines, environment)
    one, two = raised.value.text.splitlines()
    assert one.startswith(f"{file}:7:14: pipelines.one.select: expected a SELECT of Spark SQL without this mistake: ")
    assert one.endswith(", found 'put_tim'")
    assert two.startswith(f"{file}:12:17: pipelines.two.tables.t: expected a table without this mistake: ")
    assert two.endswith(", found 'nowhere.csv'")


def test_a_table_is_that_of_its_own_pipeline_only(bench: Bench) -> None:
    (bench.directory / "t.csv").write_text("x\n1\n")
    text = "{$queue, tables: {$tables}, select: SELECT x FROM input CROSS JOIN t, to: {mq: {queue: R}}}"
    one, other = text.replace("$tables", "t: t.csv"), text.replace("$tables", "")
    one, other = one.replace("$queue", QUEUE), other.replace("$queue", "from: {mq: {queue: P}}")
    bench.write(f"pipelines: {{one: {one}, other: {other}}}")
    assert bench.plan("one").frame.isStreaming
    with pytest.raises(Mistake, match="cannot be found"):
        bench.plan("other")


def test_pipelines_that_write_other_columns_into_one_directory(bench: Bench) -> None:
    file = bench.write(
        """
        pipelines:
          one: {from: {mq: {queue: Q}}, select: SELECT 1 AS n FROM input, to: {archive: a}}
          two: {from: {mq: {queue: P}}, select: "SELECT 'x' AS s, 1 AS n FROM input", to: {archive: b/../a}}
          like: {from: {mq: {queue: R}}, select: SELECT 2 AS n FROM input, to: {archive: a}}
        """
    )
    configuration = load(file)
    environment = environment_of(configuration, file, bench.queues.directory)
    with pytest.raises(Failure) as raised:
        check_all(bench.spark, file, configuration.pipelines, environment)
    (said,) = raised.value.text.splitlines()
    assert said.startswith(f"{file}:4:") and "pipelines.two.to.archive: expected a directory of its own, or the" in said
    assert "of pipeline one (date string, hour string, n int), found date string, hour string, n int, s string" in said
