"""What workers of a cluster do not reach is refused before anything starts, with the keys that mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import load
from bridge.spark.flow.environment import PipelineEnvironment, environment_of
from bridge.spark.flow.mistake import Mistake
from bridge.spark.flow.plan import plan
from bridge.spark.flow.remote_queue_manager import OutOfReach
from tests.spark.flow.conftest import Bench

FAR, HERE = "spark://cluster:7077", "spark://127.0.0.1:7077"


def environment(directory: Path, text: str, master: str | None = FAR) -> PipelineEnvironment:
    file = directory / "bridge.yaml"
    file.write_text(text, encoding="utf-8")
    return environment_of(load(file), file, directory / "data", master)


def options(directory: Path, text: str, master: str | None = FAR) -> dict[str, str]:
    return environment(directory, f"queue_manager: {{name: QM1{text}}}", master).queue_manager


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[2,4]"])
def test_on_this_machine_by_the_socket(master: str | None, tmp_path: Path) -> None:
    listener = ", listener: {port: 1414, password_file: p}"
    expected = {"dataDirectory": str(tmp_path / "data"), "queueManager": "QM1"}
    assert options(tmp_path, listener, master) == expected


@pytest.mark.parametrize(
    "text, master, expected",
    [
        (", listener: {port: 1415}", HERE, {"listener": "127.0.0.1(1415)"}),
        (", listener: {address: 10.0.0.7, password_file: p}}\nspark: {user: u, password_file: /p", FAR,
         {"listener": "10.0.0.7(1414)", "user": "u", "passwordFile": "/p"}),
        (", listener: {address: 0.0.0.0, password_file: p}}\nspark: {user: u, password_file: /p", HERE,
         {"listener": "127.0.0.1(1414)", "user": "u", "passwordFile": "/p"}),
        (", listener: {address: 10.0.0.7, password_file: p, tls: {certificate_file: c}}}\nspark: {user: u, password_file: /p,"
         " tls: {ca_file: /ca.pem, certificate_file: /c.pem, key_file: /c.key, check_host_name: no}", FAR,
         {"listener": "10.0.0.7(1414)", "user": "u", "passwordFile": "/p", "tls": "true", "tlsCaFile": "/ca.pem",
          "tlsCertificateFile": "/c.pem", "tlsKeyFile": "/c.key", "tlsCheckHostName": "false"}),
        ("}\nspark: {listener: gateway(2000), user: u, password_file: /p", "yarn",
         {"listener": "gateway(2000)", "user": "u", "passwordFile": "/p"}),
    ],
)  # fmt: skip
def test_on_a_cluster_by_the_listener(text: str, master: str, expected: dict[str, str], tmp_path: Path) -> None:
    assert options(tmp_path, text, master) == {"queueManager": "QM1", **expected}


@pytest.mark.parametrize(
    "text, master, said",
    [
        ("", FAR, r"workers of spark://cluster:7077 reach the queue manager by TCP only, .* expected queue_manager.listener"),
        ("", "yarn", r"workers of yarn reach the queue manager by TCP only"),
        (", listener: {port: 0}", FAR, r"takes any free port, .* expected spark.listener: host\(port\)"),
        (", listener: {port: 1414}", FAR, r"is at 127.0.0.1, where only programs of this machine come, .* spark.listener"),
        (", listener: {address: 0.0.0.0, password_file: p}", FAR, r"at all addresses .* expected spark.listener"),
        (", listener: {address: 10.0.0.7, password_file: p}", FAR, r"expected spark.user, and spark.password_file"),
        (", listener: {address: 10.0.0.7, password_file: p, tls: {certificate_file: c}}", FAR, r"TLS: expected spark.tls"),
        (", listener: {address: 10.0.0.7, authentication: [{method: password, file: p}]}", FAR, r"expected spark.user"),
        (", type: ibm, mode: bindings", FAR, r"in mode bindings: expected queue_manager.mode: client"),
    ],
)
def test_no_way_to_the_queue_manager(text: str, master: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(OutOfReach, match=said):
        options(tmp_path, text, master)


WINDOW = "window(put_time, '1 minute')"
STATE = f"SELECT topic, count(*) AS n, {WINDOW} AS w FROM input GROUP BY topic, {WINDOW}"
QUEUE, TO = "from: {mq: {queue: Q}}", "to: {mq: {queue: R}}"
BODY = f"{QUEUE}, select: SELECT body FROM input"


@pytest.mark.parametrize(
    "text, location, expected",
    [
        (f"{BODY}, to: {{archive: table}}", ("to", "archive"), "below one of"),
        (f"{BODY}, to: {{format: parquet, path: rows}}", ("to", "path"), "below one of"),
        (f"{BODY}, {TO}, dead_letters: {{archive: d}}", ("dead_letters", "archive"), "shared"),
        (f'{QUEUE}, select: "{STATE}", {TO}, late: {{archive: late}}', ("late", "archive"), "below one of"),
        (f"{BODY}, {TO}, dead_letters: {{format: noop}}", ("checkpoint",), "leave dead letters there"),
        (f"{QUEUE}, select: SELECT DISTINCT put_time FROM input, {TO}", ("checkpoint",), "remembers from batch to batch"),
        (f"{BODY}, {TO}, tables: {{t: t.csv}}", ("tables", "t"), "spark.shared"),
        (f"from: {{archive: seen}}, select: SELECT topic FROM input, {TO}", ("from", "archive"), "spark.shared"),
        (f'{QUEUE}, select: "{STATE}", {TO}', ("checkpoint",), "remembers from batch to batch"),
        (f"{QUEUE}, select: SELECT topic FROM input, {TO}, changes: {{key: [topic]}}", ("checkpoint",), "remembers"),
        (f"{BODY}, to: {{mqtt: a}}", ("to", "mqtt"), "a link to a broker that workers"),
        (f"{BODY}, to: {{mqtt: a, link: l}}", ("to", "mqtt"), "a link to a broker"),
    ],
)
def test_what_workers_do_not_see(bench: Bench, text: str, location: tuple[str, ...], expected: str) -> None:
    (bench.directory / "t.csv").write_text("a\n1\n", encoding="utf-8")
    (bench.directory / "seen").mkdir()
    listener = "queue_manager: {listener: {address: 10.0.0.7, password_file: p}}"
    spark = "spark: {user: u, password_file: p, shared: [other]}\nlinks: {l: {host: localhost}}"
    far = environment(bench.directory, f"{listener}\n{spark}\npipelines: {{a: {{{text}}}}}")
    config = load(bench.file).pipelines["a"]
    with pytest.raises(Mistake) as raised:
        plan(bench.spark, "a", config, far)
    assert raised.value.location == location and expected in raised.value.expected
    # On this machine nothing is in the way, nor where the file system is shared and brokers are elsewhere.
    near = environment(bench.directory, f"pipelines: {{a: {{{text}}}}}\nlinks: {{l: {{host: h}}}}", None)
    plan(bench.spark, "a", config, near)
    if "mqtt" not in location:
        spark = f"spark: {{user: u, password_file: p, shared: [{bench.directory}]}}"
        plan(bench.spark, "a", config, environment(bench.directory, f"{listener}\n{spark}\npipelines: {{a: {{{text}}}}}"))


def test_spooled_publications_travel_with_the_plan(tmp_path: Path) -> None:
    text = """
queue_manager: {listener: {address: 10.0.0.7, password_file: p}}
spark: {user: u, password_file: p}
pipelines: {a: {from: {mqtt: x}, select: SELECT body FROM input, to: {mq: {queue: R}}}}
"""
    for master, embedded in ((FAR, "true"), (None, "false")):
        made = environment(tmp_path, text, master)
        options = made.source_options("a", load(tmp_path / "bridge.yaml").pipelines["a"])
        assert options.get("embed", "false") == embedded
