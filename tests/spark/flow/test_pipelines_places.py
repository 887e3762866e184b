"""Pipelines wherever they read, write and run: a topic of MQ, IBM MQ, a cluster of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from paho.mqtt import publish

from bridge.config.queue_manager import ListenerConfig
from bridge.spark.mq.browsing import managed_queue
from testing.ibm_standin import frames
from tests.helpers.client_packages import BUILD, QUEUE_MANAGER_VARIABLE, package
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.postgresql import DRIVER, PostgreSQL, is_installed
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.spark.cluster import can_stand_apart, cluster
from tests.spark.conftest import ROOT, Queues
from tests.spark.driver import CLUSTER
from tests.spark.faults import kill_driver
from tests.spark.flow.conftest import Bench
from tests.spark.mqtt.spooler import session_made

#: A driver and a cluster are started, on what may be a busy machine.
PATIENCE = 600


def test_from_a_topic_of_mq(bench: Bench) -> None:
    target = bench.queues.queue()
    bench.write(
        """
        pipelines:
          from-topic:
            from: {mq: {topic: pipeline/+/readings}}
            payload: text
            select: SELECT topic, payload, body FROM input WHERE payload <> 'none'
            to: {mq: {queue: $target}, archive: table}
        """,
        target=target,
    )
    subscription = "MQBRIDGE.PIPELINE.from-topic"
    bench.queues.publish("pipeline/a/readings", b"before the pipeline ran")
    bench.run()  # the subscription begins
    (shown,) = bench.queues.mqsc(f"DISPLAY SUB('{subscription}') DURABLE")
    assert shown["DURABLE"] == "YES"
    bench.queues.publish("pipeline/a/readings", b"1")
    bench.queues.publish("pipeline/b/readings", b"none")
    bench.queues.publish("elsewhere", b"2")
    bench.run()
    bench.queues.publish("pipeline/b/readings", b"3")
    bench.run()
    bench.run()  # nothing is new
    assert bench.queues.bodies(target) == [b"1", b"3"]
    # A pipeline that is no more leaves it behind; so an administrator ends it.
    bench.queues.end_subscription(subscription)


def run(bench: Bench, *arguments: object, **environment: object) -> str:
    """`mqbridge pipeline run` to its end in a process of its own; what it says."""
    command = [str(Path(sys.executable).with_name("mqbridge")), "pipeline", "run", "--once", *map(str, arguments)]
    given = os.environ | {"PYTHONPATH": ROOT} | {name: str(value) for name, value in environment.items()}
    command += ["--config", str(bench.file)]
    process = subprocess.Popen(command, cwd=ROOT, env=given, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, told = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        kill_driver(process.pid)
        pytest.fail(f"it goes on: {process.communicate()[1]}")
    assert process.returncode == 0, told
    return told


@pytest.mark.slow
@pytest.mark.skipif(not can_stand_apart(), reason="needs mount namespaces")
@pytest.mark.timeout(PATIENCE * 2)
def test_on_a_cluster_with_two_workers_that_see_nothing_of_the_driver(
    bench: Bench, broker: Mosquitto, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They come to the queue manager by TCP with a password; spooled publications come to them in the plan."""
    seen = tmp_path_factory.mktemp("seen")
    (seen / "known").write_text("spark:s3cret\n", encoding="utf-8")
    (seen / "secret").write_text("s3cret\n", encoding="utf-8")
    data = tmp_path_factory.mktemp("remote-queue-manager")
    with ServedQueueManager(data, listener=ListenerConfig(password_file=seen / "known")) as served:
        queues = Queues(data)
        source, target, dead = (queues.queue() for _ in range(3))
        bench.write(
            """
            queue_manager:
              data_directory: $data
              listener: {port: $port, password_file: $seen/known}
            spark: {user: spark, password_file: $seen/secret, shared: [$seen]}
            links: {plant: {host: 127.0.0.1, port: $broker}}
            pipelines:
              queues:
                from: {mq: {queue: $source}}
                select: SELECT payload:n::int AS n, 60 DIV payload:n::int AS x FROM input DISTRIBUTE BY payload:n::int % 7
                to: {mq: {queue: $target}, archive: $seen/table}
                dead_letters: {queue: $dead}
                batch: 25
                checkpoint: $seen/one
              topics:
                from: {mqtt: apart/#, link: plant}
                payload: bytes
                select: SELECT body FROM input
                to: {mq: {queue: $target}}
                checkpoint: two
            """,
            source=source,
            target=target,
            dead=dead,
            data=data,
            port=served.port,
            seen=seen,
            broker=broker.port,
        )
        session_made(broker.port, bench.directory / "two" / "spool", "apart/#")
        large = b"x" * 400_000
        publish.single("apart/1", large, qos=1, port=broker.port)
        queues.put(source, *(b'{"n": %d}' % number for number in range(60)), b"no JSON")
        settings = seen / "settings"
        settings.mkdir()
        (settings / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in CLUSTER.items()))
        with cluster(bench.spark, seen / "workers", hidden=[data, bench.directory]) as master:
            told = run(bench, "--master", master, SPARK_CONF_DIR=settings)
        assert "queues: done" in told and "topics: done" in told
        assert sorted(one.name for one in seen.glob("workers/app-*/*")) == ["0", "1"]
        assert queues.depth(source) == 0
        expected = [*(b'{"n":%d,"x":%d}' % (n, 60 // n) for n in range(1, 60)), large]
        assert sorted(queues.bodies(target)) == sorted(expected)
        assert sorted(body[-7:] for body in queues.bodies(dead)) == [b'"n": 0}', b"no JSON"]
        assert bench.spark.read.parquet(str(seen / "table")).count() == 59
        queues.connection.disconnect()


@pytest.mark.skipif(QUEUE_MANAGER_VARIABLE in os.environ, reason="the stand-in takes the place of IBM's library")
@pytest.mark.timeout(PATIENCE * 2)
@pytest.mark.slow
@pytest.mark.parametrize(("library", "on_cluster"), [("pymqi", False), ("ibmmq", True)])
def test_from_and_to_ibm_mq(bench: Bench, library: str, on_cluster: bool, tmp_path: Path) -> None:
    """On the stand-in for IBM's library: puts are asynchronous, so which one is refused the commit does not say.

    On a cluster executors browse and put, each with connections of its own.
    """
    package(library)
    source, target, other = bench.queues.queue(), bench.queues.queue("MAXMSGL(9)"), bench.queues.queue()
    dead = bench.queues.queue()
    bench.write(
        """
        queue_manager:
          {type: ibm, name: MQB1, library: $library, channel: SYSTEM.DEF.SVRCONN, connections: [localhost(1414)],
           dead_letter_queue: $dead}
        pipelines:
          queues:
            from: {mq: {queue: $source}, options: {partitions: 2}}
            payload: text
            select: SELECT body, md FROM input
            to: {mq: {queue: $target}}
            checkpoint: one
          topics:
            from: {mq: {topic: pipeline/ibm/+}}
            select: SELECT topic, 6 DIV payload:n::int AS n FROM input
            to: {mq: {queue: $other}}
            checkpoint: other
        """,
        library=library,
        source=source,
        target=target,
        other=other,
        dead=dead,
    )
    environment: dict[str, object] = {
        "PYTHONPATH": f"{ROOT}:{BUILD / library}",
        "LD_LIBRARY_PATH": BUILD / "lib64",
        "MQI_STANDIN": f"unix:{bench.queues.directory / frames.SOCKET_NAME}",
    }
    managed_queue(bench.queues.connection, "MQBRIDGE.PIPELINE.topics", "pipeline/ibm/+")  # as a run before has made it
    bench.queues.put(source, b"1", b"much too long", b"2", CorrelId=b"C" * 24)
    for number in (3, 0, 2):
        bench.queues.publish("pipeline/ibm/x", b'{"n": %d}' % number)
    with cluster(bench.spark, tmp_path / "workers") if on_cluster else nullcontext() as master:
        remote = {f"spark.executorEnv.{name}": value for name, value in environment.items()} | CLUSTER
        settings = [f"--conf={name}={value}" for name, value in remote.items()]
        told = run(bench, *([f"--master={master}", *settings] if master else []), **environment)
    if on_cluster:
        assert sorted(one.name for one in tmp_path.glob("workers/app-*/*")) == ["0", "1"]
    assert "queues: done" in told and "topics: done" in told
    assert bench.queues.depth(source) == 0
    taken = bench.queues.take(target)
    assert sorted(got.data for got in taken) == [b"1", b"2"] and {got.md.CorrelId for got in taken} == {b"C" * 24}
    assert sorted(body[-3:] for body in bench.queues.bodies(dead)) == [b" 0}", b"ong"]
    assert sorted(bench.queues.bodies(other)) == sorted(b'{"topic":"pipeline/ibm/x","n":%d}' % n for n in (2, 3))
    bench.queues.end_subscription("MQBRIDGE.PIPELINE.topics")


@pytest.mark.skipif(not is_installed(), reason="PostgreSQL is not installed; `make test-slow` installs it")
@pytest.mark.timeout(PATIENCE * 2)
@pytest.mark.slow
def test_to_postgresql(bench: Bench) -> None:
    """By Debian's driver for JDBC, which `--jars` brings; it is away at first, and then takes what has waited."""
    source, target = bench.queues.queue(), bench.queues.queue()
    (bench.directory / "password").write_text("s3cret\n")
    server = PostgreSQL("s3cret")
    bench.write(
        """
        queue_manager: {data_directory: $data}
        pipelines:
          readings:
            from: {mq: {queue: $source}}
            checkpoint: state
            select: SELECT payload:id::int AS id, payload:temp::double AS temp, put_time AS at FROM input
            to:
              mq: {queue: $target}
              format: jdbc
              options: {url: "$url", dbtable: readings, user: me, driver: org.postgresql.Driver}
              secrets: {password: password}
        """,
        source=source,
        target=target,
        url=server.url,
        data=bench.queues.directory,
    )
    bench.queues.put(source, *(b'{"id": %d, "temp": 0.5}' % number for number in range(100)))
    program = Path(sys.executable).with_name("mqbridge")
    command = [program, "pipeline", "run", "--once", "--jars", DRIVER, "--config", bench.file]
    with LineProcess(command, env=os.environ | {"PYTHONPATH": ROOT}) as pipeline:
        pipeline.line_where(lambda line: str(server.port) in line and "tried again in" in line, PATIENCE)
        with server:
            pipeline.line_where(lambda line: "readings: done" in line, PATIENCE)
            rows = server.ask("SELECT id, temp, count(*) FROM readings GROUP BY id, temp, at ORDER BY id")
    assert rows == [f"{number}|0.5|1" for number in range(100)]
    assert bench.queues.depth(source) == 0 and bench.queues.depth(target) == 100
    assert not any("s3cret" in line for line in pipeline.seen)
