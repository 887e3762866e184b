"""The order of steps between a queue manager and a broker, and exceptional cases: lost sessions, old records, rejections."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.link_sessions import Exchanges, LinkSession, LinkSessions
from bridge.mq.state import MappingState
from bridge.service.mappings import former_sessions
from bridge.service.mappings import link_runner as to_link
from bridge.service.mappings.link_runner import FromLinkRunner
from bridge.service.mappings.unfinished_sessions import UnfinishedSessions
from bridge.wire import cmqc
from tests.helpers.mapping_broker import LinkFault
from tests.helpers.mapping_scene import DEAD_LETTERS, LINK, OWNER, Fault, Scene, mapping_config
from tests.helpers.patience import PATIENCE, until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

FROM_LINK = ({"mqtt": "t/#", "link": "L"}, {"queue": "OUT"})
TO_LINK = ({"queue": "IN"}, {"mqtt": "t/a", "link": "L"})
BATCH = {"messages": 2, "time": "1 s"}


@pytest.mark.parametrize(
    ("guarantee", "qos", "trace"),
    [
        ("at-least-once", 1, ["commit", "PUBACK", "PUBACK"]),
        ("exactly-once", 2, ["commit", "PUBREC", "PUBREC", "commit", "PUBCOMP", "PUBCOMP"]),
    ],
)
def test_the_broker_is_answered_after_the_commit(scene: Scene, guarantee: str, qos: int, trace: list[str]) -> None:
    config = mapping_config(*FROM_LINK, guarantee=guarantee, batch=BATCH)
    scene.run(config, scene.settled)
    scene.broker.trace.clear()
    scene.broker.send(b"1", b"2", qos=qos)
    scene.run(config, lambda: scene.broker.quiet and scene.settled())
    assert [step for step in scene.broker.trace if step != "backout"] == trace


@pytest.mark.parametrize(
    ("guarantee", "trace"),
    [
        ("at-most-once", ["commit", "PUBLISH", "PUBLISH"]),
        ("at-least-once", ["PUBLISH", "PUBLISH", "commit"]),
        # The record, the messages, the record again, the release, the unit of work.
        ("exactly-once", ["commit", "PUBLISH", "PUBLISH", "commit", "PUBREL", "PUBREL", "commit"]),
    ],
)
def test_a_message_leaves_the_queue_after_the_broker_has_received_it(
    scene: Scene, guarantee: str, trace: list[str]
) -> None:
    config = mapping_config(*TO_LINK, guarantee=guarantee, batch=BATCH)
    scene.run(config, scene.settled)
    scene.broker.trace.clear()
    # Both at once, so that they are in one batch.
    handle = scene.application.open(scene.od("IN"), cmqc.MQOO_OUTPUT)
    for body in (b"1", b"2"):
        scene.application.put(handle, scene.message(body), cmqc.MQPMO_SYNCPOINT)
    scene.application.commit()
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
    steps = [step for step in scene.broker.trace if step != "backout"]
    # A restarted mapping repeats the releases on record.
    assert steps[-len(trace) :] == trace


def test_unknown_releases_are_completed(scene: Scene) -> None:
    scene.broker.session = True
    scene.broker.unreleased = {3, 7}
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    scene.run(config, lambda: scene.broker.quiet and scene.settled())
    assert scene.broker.trace.count("PUBCOMP") == 2
    assert scene.depth("OUT") == 0


@pytest.mark.parametrize("lost", range(1, 9))
def test_message_ids_of_a_lost_session_are_not_used_for_the_next(scene: Scene, lost: int) -> None:
    """The broker uses the same message ids again. Publications of the new session must not count as repetitions."""
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    # Put, and not yet released, when the session is lost.
    scene.broker.send(b"1", b"2", b"3", b"4")
    scene.run(config, lambda: scene.broker.quiet and scene.settled(), link_fault=LinkFault(3, "within", kills=True))
    scene.broker.send(b"5", b"6")
    scene.run(config, lambda: scene.depth("OUT") >= 6 and scene.settled())
    before = scene.bodies("OUT")
    assert before == [b"1", b"2", b"3", b"4", b"5", b"6"]
    scene.recorded(received=[1, 2, 3, 4])
    scene.broker.session = False
    scene.broker.send(b"7", b"8", b"9")
    # Whichever verb fails while the new session starts.
    scene.run(config, lambda: scene.broker.quiet and scene.settled(), fault=Fault(lost, after=bool(lost % 2)))
    assert scene.bodies("OUT") == [b"7", b"8", b"9"]


def test_a_publication_repeated_before_the_session_was_lost_is_recognized(scene: Scene) -> None:
    """It was put but not acknowledged, and sent again after a reconnection. Then the broker lost its session."""
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    runner = FromLinkRunner("map", config, LINK, scene.environment, MappingStatus(name="map"))
    link = scene.links["map"]
    connection = scene.connect("map")
    link.start()
    runner.opened(connection)
    scene.broker.send(b"1", packet_id=1)
    link.acknowledge = lambda received: link.reconnect()
    runner.unit(connection, 2)
    assert scene.depth("OUT") == 1
    link.reconnect(lose_session=True)
    runner.unit(connection, 2)
    assert scene.bodies("OUT") == [b"1"]


def test_publications_are_not_acknowledged_while_their_record_cannot_be_written(scene: Scene) -> None:
    """The state queue rejects puts: the unit of work is backed out, and its publications do not count as received."""
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    scene.run(config, scene.settled)
    scene.mqsc(f"ALTER QLOCAL({MAPPING_STATE_QUEUE}) PUT(DISABLED)")
    scene.broker.send(b"1", b"2", b"3")
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.STUCK and runner.status.backouts > 1)
    assert (scene.depth("OUT"), len(scene.broker.unacknowledged)) == (0, 3)
    scene.mqsc(f"ALTER QLOCAL({MAPPING_STATE_QUEUE}) PUT(ENABLED)")
    until(lambda: scene.broker.quiet and scene.depth("OUT") >= 3)
    scene.stop(runner)
    assert scene.bodies("OUT") == [b"1", b"2", b"3"]


def test_a_release_survives_a_failed_commit(scene: Scene) -> None:
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    for number in range(1, 40):
        scene.broker.send(b"1")
        fault = Fault(number)
        # If a release were forgotten, its message id would stay in use, and the broker would not become idle.
        scene.run(config, lambda: scene.broker.quiet and scene.settled(), fault=fault)
        assert scene.bodies("OUT") == [b"1"], fault.struck


def test_a_mapping_waits_for_the_end_of_an_unfinished_unit_of_work(scene: Scene) -> None:
    """A connection was lost, and the queue manager has not noticed, so the result of its puts is unknown."""
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    scene.run(config, scene.settled)
    old = scene.connect("another")
    scene.record(old).save(Exchanges(received=[1]))
    scene.broker.send(b"1")
    # It is sent again after the lost connection.
    scene.broker.unacknowledged[1] = scene.broker.outgoing.popleft()
    runner = scene.runner(config)
    until(lambda: "MQRC_UOW_IN_PROGRESS" in runner.status.last_error)
    assert runner.status.state is RunnerState.WAITING_FOR_QUEUE_MANAGER
    assert scene.depth("OUT") == 0
    old.commit()
    until(lambda: scene.broker.quiet)
    scene.stop(runner)
    # The other connection had put the publication with message id 1.
    assert scene.bodies("OUT") == []


def test_a_broker_with_a_smaller_receive_maximum_than_messages_on_record(scene: Scene) -> None:
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch={"messages": 4, "time": "1 s"})
    numbers = [b"%d" % number for number in range(8)]
    scene.put("IN", *numbers)
    fault = LinkFault(2, "within", kills=True)
    runner = None
    scene.run(config, lambda: bool(fault.struck) and scene.killed, link_fault=fault)
    scene.broker.in_flight = 1
    status = scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
    assert runner is None and status.state is RunnerState.RUNNING, status
    assert scene.broker.released_payloads == scene.broker.arrived == numbers


def test_messages_with_the_same_message_identifier(scene: Scene) -> None:
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch={"messages": 4, "time": "1 s"})
    for number in range(1, 12):
        scene.put("IN", b"1", b"2", b"3", MsgId=b"same".ljust(24, b"\0"))
        fault = LinkFault(number, "within", kills=True)
        scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled(), link_fault=fault)
        assert scene.broker.released_payloads == [b"1", b"2", b"3"], fault.struck
        scene.broker.released_payloads.clear()


def test_a_message_on_record_that_was_removed_releases_its_message_id(scene: Scene) -> None:
    """Otherwise the broker would treat the next message with its message id as a repetition."""
    scene.recorded(sending=[(1, b"gone".ljust(24, b"\0")), (2, b"here".ljust(24, b"\0"))])
    scene.broker.session = True
    scene.broker.pending = {1: b"gone"}
    scene.put("IN", b"here", MsgId=b"here".ljust(24, b"\0"))
    config = mapping_config(*TO_LINK, guarantee="exactly-once")
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
    assert scene.broker.released_payloads == [b"gone", b"here"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_message_that_the_broker_rejects_is_retried_then_dead_lettered(scene: Scene, guarantee: str) -> None:
    refused: list[bytes] = []

    def refusing(publication: object) -> bool:
        payload = publication.payload  # type: ignore[attr-defined]
        if payload == b"never" or (payload == b"later" and refused.count(payload) < 2):
            refused.append(payload)
            return True
        return False

    scene.broker.refusing = refusing
    scene.put("IN", b"1", b"never", b"later", b"2")
    config = mapping_config(*TO_LINK, guarantee=guarantee, backouts=3)
    status = scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
    assert sorted(scene.broker.arrived) == [b"1", b"2", b"later"]
    assert refused.count(b"never") == 4
    (letter,) = scene.letters()
    assert (letter.header.Reason, letter.body) == (cmqc.MQRC_PUBLICATION_FAILURE, b"never")
    assert letter.header.DestQName.rstrip(b" \0") == b"IN"
    assert (status.moved, status.dead_lettered) == (3, 1)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_rejected_message_while_the_dead_letter_queue_is_full(scene: Scene, guarantee: str) -> None:
    scene.broker.refusing = lambda publication: publication.payload == b"never"
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) PUT(DISABLED)")
    scene.broker.in_flight = 3
    scene.put("IN", b"1", b"never", b"2")
    runner = scene.runner(mapping_config(*TO_LINK, guarantee=guarantee, backouts=1, batch={"time": "1 s"}))
    until(lambda: runner.status.state is RunnerState.STUCK and runner.status.backouts > 2)
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) PUT(ENABLED)")
    until(lambda: scene.depth("IN") == 0 and scene.broker.quiet and runner.status.dead_lettered == 1)
    scene.stop(runner)
    assert scene.broker.failures == []
    if guarantee == "exactly-once":
        assert scene.broker.released_payloads == scene.broker.arrived == [b"1", b"2"]
    assert [letter.body for letter in scene.letters()] == [b"never"]


def test_no_message_is_got_while_the_link_is_not_connected(scene: Scene) -> None:
    config = mapping_config(*TO_LINK)
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.RUNNING)
    link = scene.links["map"]
    link.leave()
    scene.put("IN", b"1")
    until(lambda: runner.parked and runner.status.state is RunnerState.WAITING_FOR_LINK)
    assert scene.depth("IN") == 1
    link.reconnect()
    until(lambda: scene.broker.arrived == [b"1"])
    scene.stop(runner)


@pytest.mark.parametrize("direction", [FROM_LINK, TO_LINK])
def test_a_mapping_that_lost_its_link_does_not_report_running(
    scene: Scene, direction: tuple[dict[str, str], dict[str, str]]
) -> None:
    runner = scene.runner(mapping_config(*direction))
    until(lambda: runner.status.state is RunnerState.RUNNING)
    link = scene.links["map"]
    link.leave()
    # The network thread reported the loss just before the mapping's thread reported that it runs.
    runner.status.state = RunnerState.RUNNING
    runner.wake()
    until(lambda: runner.status.state is RunnerState.WAITING_FOR_LINK)
    link.reconnect()
    until(lambda: runner.status.state is RunnerState.RUNNING)
    scene.stop(runner)


# Client identifiers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [FROM_LINK, TO_LINK])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_default_client_identifier_contains_the_identifier_of_the_queue_manager(
    scene: Scene, direction: tuple[dict[str, str], dict[str, str]], guarantee: str
) -> None:
    """Mappings with the same name on two bridges then have separate sessions at one broker."""
    scene.run(mapping_config(*direction, guarantee=guarantee), scene.settled)
    bridge = scene.environment.bridge_id(scene.application)
    assert len(bridge) == 8
    assert scene.links["map"].client_id == f"mqbridge-{bridge}-map"


def test_a_session_of_an_older_release_keeps_its_client_identifier(scene: Scene) -> None:
    """The session at the broker may contain messages."""
    session = LinkSession("map", OWNER, "L", LINK.host, LINK.broker_port, "mqbridge-map", ["t/#"], 1, sure=True)
    LinkSessions(scene.application).save(session)
    scene.run(mapping_config(*FROM_LINK), scene.settled)
    assert scene.links["map"].client_id == "mqbridge-map"
    recorded = LinkSessions(scene.application).load("map")
    assert recorded is not None and recorded.key == session.key


def test_unfinished_messages_of_an_older_release_keep_the_client_identifier_of_their_session(scene: Scene) -> None:
    """The broker has answered them with PUBREC, and PUBREL in another session would lose them."""
    config = mapping_config(*TO_LINK, guarantee="exactly-once")
    record = MappingState(scene.application, "map")
    record.load()
    record.save(msgspec.msgpack.encode(([], [7])))
    scene.application.commit()
    for _ in range(2):
        scene.run(config, scene.settled)
        assert scene.links["map"].client_id == "mqbridge-map"
    assert scene.broker.trace.count("PUBREL") == 1


# A broker that forgets, or closes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "within"])
@pytest.mark.parametrize("call", range(1, 12))
def test_messages_that_a_broker_loses_with_its_session_are_sent_again(scene: Scene, call: int, moment: str) -> None:
    """The message was got from the queue at PUBREC. A broker forwards it at PUBREL, but lost it before."""
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch={"messages": 4, "time": "1 s"})
    scene.broker.forgetful = True
    bodies = [b"%d" % number for number in range(8)]
    scene.put("IN", *bodies, Persistence=1)
    scene.run(
        config,
        lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled(),
        link_fault=LinkFault(call, moment),
    )
    assert set(scene.broker.released_payloads) == set(bodies)


@pytest.mark.parametrize("away", [False, True])
def test_a_lost_connection_repeats_only_what_the_broker_did_not_acknowledge(
    scene: Scene, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With at-least-once, a restarted broker gets the rest of a batch. If it does not return, the batch is backed out."""
    monkeypatch.setattr(to_link, "RECONNECT_TIME", 0.0 if away else PATIENCE)
    config = mapping_config(*TO_LINK, batch={"messages": 4, "time": "1 s"})
    scene.put("IN", b"1", b"2", b"3", b"4", Persistence=1)
    status = scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled(), link_fault=LinkFault(1, "within"))
    repeated = [b"1", b"2"] if away else []
    assert scene.broker.arrived == [b"1", b"2", *repeated, b"3", b"4"]
    assert status.moved == 4


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_message_that_makes_the_broker_disconnect_does_not_block_others(scene: Scene, guarantee: str) -> None:
    """An access control list or a length limit of an MQTT 3.1.1 broker: the others arrive, and this one is dead-lettered."""
    config = mapping_config(*TO_LINK, guarantee=guarantee, backouts=2, batch={"messages": 10, "time": "1 s"})
    scene.broker.closing = lambda publication: publication.payload == b"bad"
    scene.put("IN", b"1", b"2", b"bad", b"3", b"4", Persistence=1)
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
    arrived = scene.broker.released_payloads if guarantee == "exactly-once" else scene.broker.arrived
    assert set(arrived) == {b"1", b"2", b"3", b"4"}
    assert len(arrived) == 4 if guarantee == "exactly-once" else len(arrived) <= 8
    (letter,) = scene.letters()
    assert (letter.body, letter.header.Reason) == (b"bad", cmqc.MQRC_PUBLICATION_FAILURE)
    # At least after 1, 2, the dead-lettered message, and 3 with 4.
    assert scene.links["map"].back_off_resets >= 4


# Records of 0.2.0 ---------------------------------------------------------------------------------------------------------


def session_of_0_2_0(scene: Scene, *filters: str, host: str = LINK.host) -> LinkSession:
    client_id = f"mqbridge-{scene.environment.bridge_id(scene.application)}-map"
    return LinkSession("map", OWNER, "L", host, LINK.broker_port, client_id, [*filters], sure=True)


def record_of_0_2_0(scene: Scene, content: object) -> None:
    record = MappingState(scene.application, "map")
    record.load()
    record.save(msgspec.msgpack.encode(content))
    scene.application.commit()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("session", ["the same", "another", "none"])
def test_received_identifiers_of_0_2_0_apply_to_their_session_only(
    scene: Scene, session: str, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    if session != "none":
        host = LINK.host if session == "the same" else "former.invalid"
        LinkSessions(scene.application).save(session_of_0_2_0(scene, "t/#", host=host))
    record_of_0_2_0(scene, [1])
    scene.broker.session = True
    # The broker repeats publications that the bridge has put.
    scene.broker.send(b"1", b"2")
    scene.broker.unacknowledged[1] = scene.broker.outgoing.popleft()
    config = mapping_config(*FROM_LINK, guarantee=guarantee, batch=BATCH)
    scene.run(config, lambda: scene.broker.quiet and scene.settled())
    assert scene.bodies("OUT") == ([b"2"] if session == "the same" else [b"1", b"2"])
    assert ("MQB5306W" in caplog.text) == (session == "none")
    # The identifier of the former session is kept for that session.
    assert len(LinkSessions(scene.application).all(OWNER)[1]) == (session == "another")


@pytest.mark.parametrize("known", [False, True])
def test_a_batch_of_0_2_0_is_finished_in_its_session(scene: Scene, known: bool) -> None:
    """If the session is uncertain, the messages on the queue are sent again: they may be duplicated, but are not lost."""
    if known:
        LinkSessions(scene.application).save(session_of_0_2_0(scene))
    record_of_0_2_0(scene, ([(2, b"sent".ljust(24, b"\0"))], [1]))
    scene.broker.session = True
    scene.broker.pending = {1: b"accepted", 2: b"sent"}
    scene.put("IN", b"sent", MsgId=b"sent".ljust(24, b"\0"))
    config = mapping_config(*TO_LINK, guarantee="exactly-once")
    if known:
        scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
        assert scene.broker.released_payloads == [b"accepted", b"sent"]
    else:
        scene.broker.pending = {1: b"accepted"}
        scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
        assert scene.broker.released_payloads == [b"accepted", b"sent"]


# Former sessions ----------------------------------------------------------------------------------------------------------


def test_messages_of_an_abandoned_session_go_to_the_dead_letter_queue(scene: Scene) -> None:
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch=BATCH)
    scene.put("IN", b"1", b"2")
    fault = LinkFault(1, "before", kills=True)
    # The record shows that the broker may have them.
    scene.run(config, lambda: bool(fault.struck) and scene.killed, link_fault=fault)
    scene.broker.fault = LinkFault()
    environment = scene.environment
    session = LinkSessions(scene.application).load("map")
    assert session is not None
    former_sessions.leave(scene.application, environment, session, ending=False)
    sessions = UnfinishedSessions(environment)
    assert sessions.give_up("other", frozenset()) == (0, 0)
    assert sessions.give_up("map", {session.key}) == (0, 0)
    (unfinished,) = sessions.listed
    assert (unfinished.mapping, unfinished.messages, unfinished.received) == ("map", unfinished.messages, 0)
    assert sessions.give_up("map", frozenset()) == (1, unfinished.messages)
    assert [letter.body for letter in scene.letters()] + scene.bodies("IN") == [b"1", b"2"]
    assert sessions.listed == []


def test_parked_messages_keep_their_retain_flag(scene: Scene) -> None:
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch=BATCH, attributes={"retained": "always"})
    scene.put("IN", b"1")
    fault = LinkFault(1, "before", kills=True)
    scene.run(config, lambda: bool(fault.struck) and scene.killed, link_fault=fault)
    session = LinkSessions(scene.application).load("map")
    assert session is not None
    former_sessions.leave(scene.application, scene.environment, session, ending=False)
    assert scene.depth("IN") == 0
    published: list[tuple[bytes, bool]] = []

    def note(publication: Any) -> bool:
        published.append((publication.payload, publication.retain))
        return False

    scene.broker.refusing = note
    scene.run(config, lambda: scene.broker.released_payloads == [b"1"] and scene.settled())
    assert {*published} == {(b"1", True)}


def test_exchanges_from_before_a_restore_are_forgotten(scene: Scene) -> None:
    """After a restore, the broker uses the packet identifiers for other publications."""
    config = mapping_config(*FROM_LINK, guarantee="exactly-once", batch=BATCH)
    scene.run(config, scene.settled)
    scene.recorded(received=[1])
    scene.environment.epoch = "restored"
    scene.broker.send(b"1")
    scene.broker.unacknowledged[1] = scene.broker.outgoing.popleft()
    scene.run(config, lambda: scene.broker.quiet and scene.settled())
    assert scene.bodies("OUT") == [b"1"]


def test_unknown_exchanges_are_released_after_a_restore(scene: Scene) -> None:
    """Otherwise the broker would treat the next messages with their packet identifiers as repetitions."""
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch=BATCH)
    scene.run(config, scene.settled)
    scene.environment.epoch = "restored"
    scene.broker.session = True
    scene.broker.pending = {1: b"open", 3: b"open, too"}
    scene.put("IN", b"1", b"2", b"3")
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
    assert scene.broker.released_payloads == [b"open", b"open, too", b"1", b"2", b"3"]
    scene.broker.trace.clear()
    scene.run(config, scene.settled)
    assert "PUBREL" not in scene.broker.trace


def test_parked_messages_from_before_a_restore_are_sent_again(scene: Scene) -> None:
    """Their packet identifiers may belong to other messages. Messages that the broker had accepted may be duplicated."""
    config = mapping_config(*TO_LINK, guarantee="exactly-once", batch=BATCH)
    scene.put("IN", b"1", b"2")
    fault = LinkFault(1, "before", kills=True)
    scene.run(config, lambda: bool(fault.struck) and scene.killed, link_fault=fault)
    scene.broker.fault = LinkFault()
    session = LinkSessions(scene.application).load("map")
    assert session is not None
    former_sessions.leave(scene.application, scene.environment, session, ending=False)
    scene.environment.epoch = "restored"
    scene.broker.session = True
    scene.broker.pending = {1: b"another", 2: b"one more"}
    scene.run(config, lambda: not UnfinishedSessions(scene.environment).listed and scene.broker.quiet)
    assert scene.broker.released_payloads[:2] == [b"another", b"one more"]
    assert sorted(scene.broker.released_payloads[2:] + scene.bodies("IN")) == [b"1", b"2"]


def test_packet_identifiers_of_0_2_0_are_forgotten_after_a_restore(scene: Scene) -> None:
    """Identifiers to be released are released, because their messages have left the queue."""
    LinkSessions(scene.application).save(session_of_0_2_0(scene))
    record_of_0_2_0(scene, ([(2, b"sent".ljust(24, b"\0"))], [1]))
    scene.environment.epoch = "restored"
    scene.broker.session = True
    scene.broker.pending = {1: b"accepted", 2: b"another"}
    scene.put("IN", b"sent", MsgId=b"sent".ljust(24, b"\0"))
    config = mapping_config(*TO_LINK, guarantee="exactly-once")
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled())
    assert scene.broker.released_payloads == [b"accepted", b"another", b"sent"]
