"""Each limit that rejects is visible: in the list of problems, with a counter, and with an alert."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.administration.answers import Problem, ProblemKind
from bridge.config.channel import ChannelConfig
from bridge.config.models import Configuration, LimitsConfig
from bridge.mqtt.packets import Publish, PublishProperties, Pubrec
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from bridge.service import process_problems
from bridge.service.limit_hits import LIMITS, QUIET_PERIOD, LimitHits
from bridge.service.limit_problems import DESCRIPTIONS
from bridge.service.metric_catalogue import METRICS
from bridge.service.process_problems import JUMP, JUMP_REPORTED, Clock, Descriptors
from tests.helpers.patience import happens
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.running_bridge import current_problems, running

ALERTS: Final = (Path(__file__).parents[3] / "deploy" / "alerts.yaml").read_text()

#: Options that reject, and have another problem than `limit`: its kind, and the metric that counts.
OTHERWISE: Final = {
    "memory_watermark": (ProblemKind.MEMORY, "mqbridge_memory_rejected_messages_total"),
    "removal_backlog": (ProblemKind.REMOVALS, "mqbridge_unremoved_messages"),
    "publish_rate": (ProblemKind.PUBLISH_RATE, "mqbridge_publications_total"),
    "authentication": (ProblemKind.REJECTIONS, "mqbridge_authentications_failed_total"),
    "failed_connects": (ProblemKind.REJECTIONS, "mqbridge_authentications_failed_total"),
    **dict.fromkeys(
        ("authentication_methods", "protocols", "shared_client_ids"),
        (ProblemKind.REJECTIONS, "mqbridge_connects_refused_total"),
    ),
    **dict.fromkeys(
        ("connect_timeout", "tls", "websocket"), (ProblemKind.REJECTIONS, "mqbridge_handshakes_failed_total")
    ),
    "schemas": (ProblemKind.PAYLOADS, "mqbridge_invalid_publications_total"),
    "refused_to_dead_letters": (ProblemKind.DEAD_LETTERS, "mqbridge_dead_letters_total"),
}
#: Options that reject nothing, and why.
EXEMPT: Final = {
    **dict.fromkeys(("in_flight", "pending_publication_bytes", "publish_bytes", "backlog"), "delay only"),
    **dict.fromkeys(("retry_interval", "shutdown_timeout", "will_grace", "keep_alive"), "times"),
    "waiting_full": "chooses what `waiting_bytes` and `waiting_total` do",
    "session_expiry": "ends sessions of clients that are away, as they or the administrator want",
    **dict.fromkeys(("publish_topics", "subscribe_topics"), "authorization: the client gets a reason code"),
    **dict.fromkeys(("name", "address", "port", "socket", "byte_order"), "where and how the channel listens"),
    **dict.fromkeys(("allow_anonymous_remote", "mcauser", "use_client_id"), "identity of clients"),
}


@pytest.mark.parametrize("option", {**LimitsConfig.model_fields, **ChannelConfig.model_fields})
def test_each_option_that_rejects_has_a_problem_a_metric_and_an_alert(option: str) -> None:
    if option in EXEMPT:
        assert option not in {*DESCRIPTIONS, *OTHERWISE}
        return
    assert option in {*DESCRIPTIONS, *OTHERWISE}, f"{option}: which problem reports the rejections?"
    kind, metric = OTHERWISE.get(option, (ProblemKind.LIMIT, "mqbridge_limit_reached_total"))
    assert kind is not ProblemKind.LIMIT or option in LIMITS
    assert metric in {metric.name for metric in METRICS}
    assert f'mqbridge_problem{{kind="{kind}"}} > 0' in ALERTS


#: Limits that are not options of these sections. They are tested with a queue manager of IBM MQ (test_backlog_campaign.py),
#: with mappings (test_mapping_backlogs.py, test_rates.py), and over HTTP (console/test_applications.py).
ELSEWHERE: Final = {"MAXDEPTH", "mapping_backlog", "max_keys", "shard", "application_requests", "application_rate"}


def test_each_counted_limit_has_a_problem() -> None:
    assert DESCRIPTIONS.keys() == set(LIMITS) - {"open_files"}
    options = LimitsConfig.model_fields.keys() | ChannelConfig.model_fields.keys()
    assert DESCRIPTIONS.keys() - options == ELSEWHERE


# Each limit is exceeded ------------------------------------------------------------------------------------------------


def refused(client: RawClient) -> None:
    """The bridge closes the connection, and may send CONNACK before that."""
    try:
        assert client.connect().return_code
    except ConnectionClosed:
        return


def second_client(port: int) -> None:
    """Two clients of one user connect. The second one is rejected by CONNACK."""
    user = {"user_name": "u", "password": b"secret"}
    with RawClient.connected(port, "first", **user), RawClient(port, "second", **user) as second:
        assert second.connect().return_code


def second_connection(port: int) -> None:
    with RawClient.connected(port, "first"), RawClient(port, "second") as second:
        refused(second)


def two_subscriptions(port: int) -> None:
    with RawClient.connected(port, "c", user_name="u", password=b"secret") as client:
        assert client.subscribe(("a", 1), ("b", 1)) == (1, 0x80)


def unreleased(port: int) -> None:
    with RawClient.connected(port, "c") as client:
        for packet_id in (1, 2):
            client.send(Publish("t", b"", 2, False, False, packet_id))
        assert client.receive() == Pubrec(1)
        client.expect_closed()


def two_requests(port: int) -> None:
    with RawClient.connected(port, "c", level=5) as client:
        for number in range(2):
            properties = PublishProperties(response_topic=f"answers/to/{number}", correlation_data=b"x" * 30)
            client.send(Publish("t", b"", 1, False, False, number + 1, properties))
            client.receive()


def slow_reader(port: int) -> None:
    with RawClient.connected(port, "c") as reader, RawClient.connected(port, "publisher") as publisher:
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.subscribe(("t", 0))
        for number in range(400):
            publisher.publish("t", b"x" * 100_000, int(number % 20 == 0))


def backlog(port: int) -> None:
    with RawClient.connected(port, "c", clean=False) as away:
        away.subscribe(("t", 1))
    with RawClient.connected(port, "publisher") as publisher:
        for _ in range(6):
            publisher.publish("t", b"x" * 400, 1)


def retained(port: int) -> None:
    with RawClient.connected(port, "c", level=5) as client:
        for number in range(3):
            client.send(Publish(f"t/{number}", b"x" * 400, 1, True, False, number + 1))
            client.receive()


def large_connect(port: int) -> None:
    with RawClient(port, "c" * 100) as client:
        refused(client)


def large_packet(port: int) -> None:
    with RawClient.connected(port, "c") as client:
        client.send(Publish("t", b"x" * 200, 0, False, False))
        client.expect_closed()


def no_proxy(port: int) -> None:
    with RawClient(port, "c") as client:
        refused(client)


def quick_connections(port: int) -> None:
    for _ in range(20):
        with RawClient(port, "c"):
            pass


BACKLOGS: Final = {"waiting_bytes": 1024}
#: Options of `limits` and of the channel, how the limit is exceeded, and the name in the problem.
EXCEEDED: Final[dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[int], None], str]]] = {
    "sessions": ({"sessions": 1}, {}, second_client, "'second'"),
    "sessions_per_user": ({"sessions_per_user": 1}, {}, second_client, "user 'u'"),
    "sessions_per_network": ({"sessions_per_network": 1}, {}, second_client, "network '127.0.0.1'"),
    "subscribe_filters": ({"subscribe_filters": 1}, {}, two_subscriptions, "'c'"),
    "subscriptions": ({"subscriptions": 1}, {}, two_subscriptions, "'c'"),
    "subscriptions_per_user": ({"subscriptions_per_user": 1}, {}, two_subscriptions, "user 'u'"),
    "subscriptions_total": ({"subscriptions_total": 1}, {}, two_subscriptions, "'c'"),
    "unreleased": ({"unreleased": 1}, {}, unreleased, "'c'"),
    "request_bytes": ({"request_bytes": 0}, {}, two_requests, "'c'"),
    "pending_bytes": ({"pending_bytes": 1}, {}, slow_reader, "'c'"),
    "waiting_bytes": (BACKLOGS, {}, backlog, "'c'"),
    "waiting_total": ({"waiting_total": 1024}, {}, backlog, "'c'"),
    "dead_letter_bytes": ({**BACKLOGS, "dead_letter_bytes": 0}, {}, backlog, "'c'"),
    "dead_letter_total": ({**BACKLOGS, "dead_letter_total": 1024}, {}, backlog, "'c'"),
    "retained_bytes": ({"retained_bytes": 1024}, {}, retained, "'c'"),
    "retained_total": ({"retained_total": 1024}, {}, retained, "'c'"),
    "max_clients": ({}, {"max_clients": 1}, second_connection, "'A'"),
    "max_clients_per_address": ({}, {"max_clients_per_address": 1}, second_connection, "'127.0.0.1'"),
    "connect_rate": ({}, {"connect_rate": 1}, quick_connections, "'127.0.0.1'"),
    "max_connect_size": ({}, {"max_connect_size": 64}, large_connect, "'127.0.0.1'"),
    "max_packet_size": ({}, {"max_packet_size": 100}, large_packet, "'c'"),
    "proxies": ({}, {"proxies": ["192.0.2.1"]}, no_proxy, "'127.0.0.1'"),
}


def test_each_limit_is_exceeded() -> None:
    assert EXCEEDED.keys() == DESCRIPTIONS.keys() - ELSEWHERE


@pytest.mark.parametrize("limit", EXCEEDED)
async def test_a_limit_that_rejects_is_one_problem(limit: str, tmp_path: Path) -> None:
    limits, channel, exceed, who = EXCEEDED[limit]
    users = tmp_path / "users"
    write_password_file(users, {"u": PasswordEntry(hash_of("secret"))})
    if "user" in limit or exceed is second_client:
        channel = {**channel, "authentication": [{"method": "password", "file": users}]}
    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"},
        channels=[{"name": "A", "port": 0, **channel}],
        limits=limits,
    )
    async with running(configuration) as bridge:
        listening = bridge.parts.channels.get("A")
        assert listening is not None and listening.endpoint is not None
        await asyncio.to_thread(exceed, listening.endpoint[1])
        service = bridge.parts.service
        await happens(lambda: service.limit_hits.totals()[limit])
        problems = [
            problem for problem in await current_problems(bridge) if problem.kind not in ("dead_letters", "disk")
        ]
        (problem,) = problems
        # When a session ends, its problem names all limits that it has reached.
        assert problem.kind == "limit" and problem.subject in (limit, "waiting_full")
        assert who in problem.what and problem.since
        value = {**limits, **channel}[limit]
        label = f"{limit} of channel A is " if limit in channel else f"limits.{limit} is "
        if problem.subject == "waiting_full":
            label = f"limits.{limit} ("
        assert label + (value[0] if isinstance(value, list) else f"{value:,}") in problem.what
        assert "`" in problem.remedy or "program" in problem.remedy or "raise" in problem.remedy


# When problems begin and end -------------------------------------------------------------------------------------------


class FakeTime:
    """The system clock and the monotonic clock."""

    def __init__(self) -> None:
        self.now, self.moment = 1_700_000_000.0, 1_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.moment

    def passes(self, seconds: float, jump: float = 0.0) -> None:
        self.moment += seconds
        self.now += seconds + jump


def test_a_problem_of_a_limit_starts_with_the_first_rejection_and_ends_a_minute_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A jump of the system clock has no effect."""
    clock = FakeTime()
    monkeypatch.setattr("bridge.service.limit_hits.time", clock)
    hits, begin = LimitHits(), clock.now
    hits.note("waiting_bytes", "a", 2)
    clock.passes(QUIET_PERIOD, jump=-7200.0)
    hits.note("waiting_bytes", "b")
    clock.passes(QUIET_PERIOD, jump=9000.0)
    (hit,) = hits.current().values()
    assert (hit.since, hit.number, [*hit.subjects]) == (begin, 3, ["a", "b"])
    clock.passes(0.1)
    assert hits.current() == {}
    hits.note("waiting_bytes", "c")
    assert (hits.current()["waiting_bytes"].since, hits.totals()["waiting_bytes"]) == (clock.now, 4)


def descriptions(problems: Iterator[Problem]) -> list[str]:
    return [problem.what for problem in problems]


def test_a_jump_of_the_clock_is_a_problem_for_an_hour() -> None:
    time = FakeTime()
    clock = Clock(time.time, time.monotonic)
    for _ in range(10):
        time.passes(5.0, jump=0.1)  # the time service corrects the clock slowly
        assert not descriptions(clock.problems())
    time.passes(5.0, jump=3600.0)
    (problem,) = clock.problems()
    assert (problem.kind, problem.what) == ("clock", "the system clock was set forward by 3,600 s")
    assert problem.since == time.now
    time.passes(JUMP_REPORTED / 2, jump=-JUMP)
    assert descriptions(clock.problems()) == [
        f"the system clock was set back by {JUMP:.0f} s, the last of 2 jumps within an hour"
    ]
    time.passes(JUMP_REPORTED / 2)
    assert descriptions(clock.problems()) == [f"the system clock was set back by {JUMP:.0f} s"]
    time.passes(JUMP_REPORTED / 2)
    assert not descriptions(clock.problems()) and clock.jumps == 2


def test_file_descriptors_are_a_problem_before_they_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors, reports = Descriptors(), []
    for used in (900, 901, 850, 801, 800, 900):
        monkeypatch.setattr(process_problems, "open_files", lambda used=used: (used, 1_000))
        reports.append(descriptions(descriptors.problems(None)))
    assert reports == [[], *([f"{used} of 1,000 file descriptors are in use"] for used in (901, 850, 801)), [], []]


def test_open_files_are_counted() -> None:
    before, limit = process_problems.open_files()
    with Path(__file__).open():
        assert process_problems.open_files() == (before + 1, limit)


async def test_connections_without_a_file_descriptor_are_a_problem(tmp_path: Path) -> None:
    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}]
    )
    async with running(configuration) as bridge:
        channel = bridge.parts.channels.get("A")
        assert channel is not None and channel.endpoint is not None
        channel.room.connections = 1
        await asyncio.to_thread(second_connection, channel.endpoint[1])
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("descriptors", "error")
        assert problem.what.endswith(" file descriptors are in use: 1 connection refused, the last one by channel A")
        assert bridge.parts.service.limit_hits.totals()["open_files"] == 1


async def test_a_backlog_beyond_a_limit_is_one_problem(tmp_path: Path) -> None:
    """The limit names its client, and the transmission queue is not an additional problem."""
    configuration = Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}]
    )
    async with running(configuration) as bridge:
        channel = bridge.parts.channels.get("A")
        assert channel is not None and channel.endpoint is not None and bridge.host is not None
        await asyncio.to_thread(backlog, channel.endpoint[1])
        connection = bridge.host.connect("test")
        command = "ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) MAXDEPTH(7)"
        (response,) = await asyncio.to_thread(connection.command, command)
        assert response.ok
        assert [(problem.kind, problem.subject) for problem in await current_problems(bridge)] == [
            ("backlog", "SYSTEM.MQTT.TRANSMIT.QUEUE")
        ]
        bridge.parts.service.limit_hits.note("MAXDEPTH", "c")
        assert [(problem.kind, problem.subject) for problem in await current_problems(bridge)] == [
            ("limit", "MAXDEPTH")
        ]
        connection.disconnect()
