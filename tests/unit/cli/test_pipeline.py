"""`mqbridge pipeline` without Spark (`tests/spark/flow` runs, ends and kills pipelines)."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bridge.cli.pipeline import settings_of
from bridge.config.pipeline import SparkConfig
from tests.helpers.command_line import Invoke

ONE = "{from: {mq: {queue: Q}}, select: SELECT body FROM input, to: {mq: {queue: R}}}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(f"pipelines: {{one: {ONE}, two: {ONE[:-1]}, enabled: no}}}}")
    return path


def test_list(invoke: Invoke, file: Path) -> None:
    result = invoke("pipeline", "list", "--config", file)
    first, two = yaml.safe_load(result.stdout).items()
    assert (result.exit_code, first[0], two[0]) == (0, "one", "two")
    assert (first[1]["enabled"], two[1]["enabled"]) == (True, False)
    assert (first[1]["from"], first[1]["to"]["mq"]["queue"]) == ({"mq": {"queue": "Q"}}, "R")
    assert first[1]["trigger"] == 1.0


def test_the_list_contains_no_secrets(invoke: Invoke, tmp_path: Path) -> None:
    options = "{url: 'jdbc:x://u:hunter2@h/db?password=hunter2'}"
    destination = f"{{format: jdbc, options: {options}, secrets: {{password: /run/pw}}}}"
    source = "{from: {mq: {queue: Q}}, select: SELECT body FROM input"
    path = tmp_path / "bridge.yaml"
    path.write_text(f"pipelines: {{one: {source}, to: {destination}}}}}")
    for output in ("table", "json"):
        result = invoke("pipeline", "list", "--config", path, "--output", output)
        assert result.exit_code == 0 and "hunter2" not in result.stdout and "/run/pw" in result.stdout


def test_the_environment_names_the_configuration(invoke: Invoke, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQBRIDGE_CONFIG", str(file))
    assert "one:" in invoke("pipeline", "list").stdout


def test_a_file_without_pipelines_is_reported(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "bridge.yaml").write_text("")
    result = invoke("pipeline", "list", "--config", tmp_path / "bridge.yaml")
    assert result.stdout == "the configuration file has no pipelines\n"


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (None, (), "specify it with --config or MQBRIDGE_CONFIG"),
        (f"pipelines: {{one: {ONE}}}", ("two",), "no pipeline two\nhint: pipelines: one"),
        ("", ("two",), "no pipeline two\nhint: pipelines: none"),
        (
            f"pipelines: {{one: {ONE[:-1]}, enabled: no}}}}",
            (),
            "the configuration file has no pipeline that is enabled",
        ),
        ("pipelines: {one: {}}", (), "bridge.yaml:1:18: pipelines.one"),
    ],
)
def test_mistakes_of_pipelines_are_reported(
    command: str, text: str | None, names: tuple[str, ...], message: str, invoke: Invoke, tmp_path: Path
) -> None:
    config = []
    if text is not None:
        (tmp_path / "bridge.yaml").write_text(text)
        config = ["--config", tmp_path / "bridge.yaml"]
    result = invoke("pipeline", command, *names, *config)
    assert result.exit_code == (3 if names else 2) and message in result.stderr


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--conf", "executor.memory=2g"], "--conf: expected KEY=VALUE with a key that begins with spark., found"),
        (["--conf", "spark.speculation"], "--conf: expected KEY=VALUE"),
        (["--conf", "spark.hadoop.fs.s3a.secret.key=x"], "--conf spark.hadoop.fs.s3a.secret.key: secrets on the"),
        (["--packages", "a:b:1,delta"], "--packages: expected group:artifact:version, found 'delta'"),
    ],
)
def test_invalid_settings_of_spark_are_rejected(
    command: str, arguments: list[str], message: str, invoke: Invoke, file: Path
) -> None:
    result = invoke("pipeline", command, *arguments, "--config", file)
    assert result.exit_code == 2 and message in result.stderr


def test_settings_of_spark_are_passed_to_the_session() -> None:
    spark = SparkConfig(conf={"spark.a": "1", "spark.b": 2}, packages=["a:b:1"], jars=["a.jar"])
    assert settings_of(spark, ["spark.a=x=y"], "c:d:2, a:b:1", "b.jar") == {
        "spark.a": "x=y",
        "spark.b": "2",
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.jars": f"a.jar,{Path('b.jar').absolute()}",
    }


def test_ctrl_c_while_spark_starts_interrupts_no_call_to_java(
    invoke: Invoke, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = []

    @contextlib.contextmanager
    def job(*_: object, **__: object) -> Iterator[None]:
        handlers.append(signal.getsignal(signal.SIGINT))
        signal.signal(signal.SIGINT, lambda *_: None)  # as SparkContext does
        yield

    def plan_all(*_: object, **__: object) -> list[object]:
        handlers.append(signal.getsignal(signal.SIGINT))
        return []

    monkeypatch.setattr("bridge.spark.session.job", job)
    monkeypatch.setattr("bridge.cli.pipeline._plan_all", plan_all)
    before = signal.getsignal(signal.SIGINT)
    result = invoke("pipeline", "check", "--config", file)
    assert result.exit_code == 0, result.output
    assert handlers == [signal.SIG_DFL, signal.SIG_DFL]
    assert signal.getsignal(signal.SIGINT) == before
