"""Administration of the dead-letter queue on all queue managers: list, retry, delete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from bridge.mq.dead_letter import HEADER_LENGTH, DeadLetters, OriginContext, Selection, dead_letter, header_of
from bridge.mq.dead_letter_queue import DeadLetterQueue, RetryOutcome
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer
from bridge.mq.mqi import CommandResponse, MQError
from bridge.telemetry.message import Destination, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, RFH2, Folder, decode_chain, encode_mqxqh, encode_rfh2
from tests.helpers.mq_applications import Application, Workplace
from tests.helpers.patience import PATIENCE

BODY = bytes(range(256))
ALL = Selection()
Send = Callable[..., MQMD]


@pytest.fixture
def letters(mq: Workplace) -> str:
    """Return the name of the dead-letter queue of this test, to which DEADQ is set."""
    name = mq.queue()
    mq.alter(DEADQ=name)
    return name


@pytest.fixture
def dlq(app: Application, letters: str) -> DeadLetterQueue:
    return DeadLetterQueue(app.connection)


@pytest.fixture
def send(other: Application, letters: str) -> Send:
    """Put a dead letter for a destination."""

    def put(
        queue: str = "",
        manager: str = "",
        data: Any = BODY,
        *,
        reason: int = cmqc.MQRC_Q_FULL,
        put_by: str = "putter",
        msg_id: Any = bytes(24),
        **md: Any,
    ) -> Any:
        described = MQMD(MsgId=msg_id, Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=1208, **md)
        return put_message(
            other, letters, dead_letter(described, data, reason, queue, manager, OriginContext.now(put_by))
        )

    return put


def put_message(app: Application, queue: str, message: Message) -> MQMD:
    return app.put(queue, message.data, **{name: getattr(message.md, name) for name in MQMD.__struct_fields__})


def published(topic: Any, body: Any = BODY, **mqps: Any) -> Any:
    """Return the data of a publication: an RFH2 with the folders mqtt and mqps, and a body."""
    folders = (
        Folder.build("mqtt", {"clientId": "dev", "qos": 1}),
        Folder.build("mqps", {"Top": topic, **mqps}),
        Folder.build("usr", {"site": "north"}),
    )
    return encode_rfh2(RFH2(CodedCharSetId=1208, folders=folders)) + body


PUBLICATION = {"Format": cmqc.MQFMT_RF_HEADER_2}


@pytest.mark.smoke
def test_a_dead_letter_describes_its_reason_and_destination(dlq: DeadLetterQueue, send: Send) -> None:
    send(
        "ORDERS",
        "FAR",
        published("shop/7", Ret=True),
        reason=cmqc.MQRC_Q_FULL,
        msg_id=b"m" * 24,
        Priority=3,
        **PUBLICATION,
    )
    (letter,) = dlq.browse(ALL)
    assert (letter.id, letter.reason, letter.reason_name) == ((b"m" * 24).hex().upper(), 2053, "MQRC_Q_FULL")
    assert "MAXDEPTH" in letter.what and "retry" in letter.advice
    assert (letter.destination, letter.destination_queue_manager, letter.put_by) == ("ORDERS", "FAR", "putter")
    assert (letter.client_id, letter.topic, letter.qos, letter.retained) == ("dev", "shop/7", 1, True)
    assert (letter.format, letter.priority, letter.size) == ("MQHRF2", 3, len(published("shop/7", Ret=True)))
    assert letter.dead_lettered > 0 and len(letter.stamp) == 16


@pytest.mark.parametrize("cut", [0, 1, HEADER_LENGTH - 1])
def test_a_message_without_a_readable_header_is_listed_and_stays(
    dlq: DeadLetterQueue, other: Application, letters: str, queue: str, cut: Any
) -> None:
    other.put(letters, b"DLH " + bytes(cut), Format=cmqc.MQFMT_DEAD_LETTER_HEADER if cut else b"")
    (letter,) = dlq.browse(ALL)
    assert not letter.has_header and "no MQDLH" in letter.what
    (retried,) = dlq.retry(ALL)
    assert "--to" in retried.failure
    (retried,) = dlq.retry(ALL, to=queue)
    assert retried.failure == "" and other.all(queue) == [b"DLH " + bytes(cut)]


SELECTIONS = [
    (Selection(), "abcd"),
    (Selection(reasons=(cmqc.MQRC_Q_FULL,)), "ab"),
    (Selection(queue="ORDERS"), "a"),
    (Selection(queue="ORD*"), "ab"),
    (Selection(client="dev"), "cd"),
    (Selection(client="dev-2"), "c"),
    (Selection(topic_filter="shop/+"), "c"),
    (Selection(topic_filter="#"), "cd"),
    (Selection(older_than=3600), ""),
    (Selection(newer_than=3600), "abcd"),
    (Selection(ids=((b"b" * 24).hex().upper(),)), "b"),
    (Selection(ids=((b"b" * 24).hex().upper() + "@2000010100000000",)), ""),
    (Selection(queue="ORD*", ids=((b"c" * 24).hex().upper(),)), ""),
]


@pytest.mark.parametrize(("selection", "chosen"), SELECTIONS)
def test_a_selection_must_meet_all_conditions(
    dlq: DeadLetterQueue, send: Send, other: Application, letters: str, selection: Any, chosen: Any
) -> None:
    send("ORDERS", msg_id=b"a" * 24)
    send("ORDERS.2", msg_id=b"b" * 24)
    send("Q", "dev-2", published("shop/7"), reason=2082, msg_id=b"c" * 24, **PUBLICATION)
    send("plant/1/2", "", published("plant/1/2"), reason=2035, msg_id=b"d" * 24, **PUBLICATION)
    assert "".join(chr(bytes.fromhex(letter.id)[0]) for letter in dlq.browse(selection)) == chosen
    assert len(list(dlq.browse(selection, count=1))) == min(1, len(chosen))
    deleted = "".join(chr(bytes.fromhex(letter.id)[0]) for letter in dlq.delete(selection))
    assert deleted == chosen
    assert len(other.all(letters)) == 4 - len(chosen)


@pytest.mark.smoke
def test_a_dead_letter_returns_to_its_queue_unchanged(
    mq: Workplace, queue: str, dlq: DeadLetterQueue, send: Send, other: Application, letters: str
) -> None:
    send(
        queue,
        mq.manager,
        Format=b"MYFMT",
        CorrelId=b"c" * 24,
        msg_id=b"m" * 24,
        Persistence=1,
        Priority=3,
        ReplyToQ=b"A",
    )
    (retried,) = dlq.retry(ALL)
    assert (retried.failure, retried.place) == ("", f"queue {queue}")
    message = other.take(queue)
    assert message.data == BODY
    assert (message.md.Format.rstrip(), message.md.CodedCharSetId, message.md.Encoding) == (
        b"MYFMT",
        1208,
        cmqc.MQENC_NATIVE,
    )
    assert (message.md.MsgId, message.md.CorrelId) == (b"m" * 24, b"c" * 24)
    assert (message.md.Persistence, message.md.Priority, message.md.ReplyToQ.rstrip()) == (1, 3, b"A")
    assert other.all(letters) == []


def test_a_message_rejected_again_stays_and_the_next_is_tried(
    mq: Workplace, dlq: DeadLetterQueue, send: Send, other: Application, letters: str
) -> None:
    full, room = mq.queue("MAXDEPTH(1)"), mq.queue()
    other.put(full, b"first")
    for number, queue in enumerate((room, full, room, "NO.SUCH.QUEUE", room)):
        send(queue, mq.manager, bytes([number]), msg_id=bytes([number + 1]) * 24)
    assert [retried.failure.partition(" ")[0] for retried in dlq.retry(ALL)] == [
        "",
        "MQRC_Q_FULL",
        "",
        "MQRC_UNKNOWN_OBJECT_NAME",
        "",
    ]
    assert other.all(room) == [b"\0", b"\2", b"\4"]
    assert [letter.destination for letter in dlq.browse(ALL)] == [full, "NO.SUCH.QUEUE"]


def test_a_dead_letter_of_a_subscription_goes_to_its_queue_only(
    mq: Workplace, dlq: DeadLetterQueue, send: Send, other: Application, root: str
) -> None:
    topic = mq.queue()  # a topic and a queue of the same name
    _, elsewhere = other.subscribe(topic)
    publication = published(topic, Sud="1")
    send(topic, mq.manager, publication, **PUBLICATION)
    (retried,) = dlq.retry(ALL)
    assert retried.failure == ""
    assert other.drain(elsewhere) == []
    message = other.take(topic, cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    assert message.data.endswith(BODY)


def test_a_message_that_a_mapping_rejected_goes_back_to_its_source(
    mq: Workplace, dlq: DeadLetterQueue, app: Application, other: Application, letters: str, root: str
) -> None:
    source, target = mq.queue(), mq.queue("MAXDEPTH(1)")
    other.put(target, b"full")
    other.put(source, BODY, Format=b"MYFMT", MsgId=b"m" * 24)
    consumer = MessageConsumer(app.connection, ConsumerSource(mapping="orders", queue=source))
    (message,) = consumer.take(1, 1, 1.0, 0.0)
    DeadLetters(app.connection, letters, "orders", source).put(
        message.md, message.data, 2053, "full", Destination(target)
    )
    app.commit()
    consumer.close()
    (retried,) = DeadLetterQueue(app.connection).retry(ALL, sources={"orders": source}, timeout=0)
    assert retried.outcome is RetryOutcome.WAITING and retried.place == f"{target} by mapping orders"
    assert retried.failure == "its outcome is unknown after 0 s"
    again = other.take(source)
    assert (again.data, again.md.MsgId, again.md.Format.rstrip()) == (BODY, b"m" * 24, b"MYFMT")


def test_a_retry_without_authority_to_display_the_queue_is_not_reported_as_delivered(
    mq: Workplace, queue: str, send: Send, other: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mapping has the message in a unit of work in progress."""
    connection = mq.connect()
    command, commit = connection.command, connection.commit

    def unauthorized(text: str) -> list[CommandResponse]:
        if text.startswith("DISPLAY QSTATUS"):
            return [CommandResponse(command=text, message="AMQ8135E: Not authorized.", ok=False)]
        return command(text)

    def commit_and_take() -> None:
        commit()
        with suppress(MQError):  # MQRC_NO_MSG_AVAILABLE before the message is put
            other.take(queue, cmqc.MQGMO_SYNCPOINT)

    monkeypatch.setattr(connection, "command", unauthorized)
    monkeypatch.setattr(connection, "commit", commit_and_take)
    send("ANY", put_by="orders")
    (retried,) = DeadLetterQueue(connection).retry(ALL, sources={"orders": queue}, timeout=0.5)
    assert retried.outcome is RetryOutcome.WAITING
    assert retried.failure == (
        f"its outcome is unknown after 0.5 s: DISPLAY QSTATUS('{queue}') failed: AMQ8135E: Not authorized."
    )


def test_a_source_that_cannot_be_browsed_is_the_reason_of_an_unknown_outcome(
    mq: Workplace, queue: str, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without BROWSE and INQ on the queue of a mapping learns why the outcome is unknown."""
    connection = mq.connect()
    open_object = connection.open

    def unauthorized(od: Any, options: int, *others: Any) -> Any:
        if od.ObjectName == queue and options & cmqc.MQOO_BROWSE:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, f"open {queue}")
        return open_object(od, options, *others)

    monkeypatch.setattr(connection, "open", unauthorized)
    send("ANY", put_by="orders")
    (retried,) = DeadLetterQueue(connection).retry(ALL, sources={"orders": queue}, timeout=0.5)
    assert retried.outcome is RetryOutcome.WAITING
    assert retried.failure == (
        f"its outcome is unknown after 0.5 s: queue {queue} cannot be browsed: MQRC_NOT_AUTHORIZED (2035): open {queue}"
    )


def test_a_publication_that_a_mapping_rejected_is_retried_to_the_mapping_only(
    mq: Workplace, app: Application, other: Application, letters: str, root: str
) -> None:
    name = mq.name("M")
    consumer = MessageConsumer(app.connection, ConsumerSource(mapping=name, topic_filter=f"{root}/+"))
    _, others = other.subscribe(f"{root}/+")
    other.publish(f"{root}/1", b"payload", MsgId=b"p" * 24)
    (message,) = consumer.take(1, 1, 1.0, 5.0)
    DeadLetters(app.connection, letters, name, f"{root}/+").put(message.md, message.data, 2330, "no mapping", None)
    app.commit()
    assert other.drain(others) == [b"payload"]
    (retried,) = DeadLetterQueue(mq.connect()).retry(ALL, timeout=0)
    assert retried.outcome is RetryOutcome.WAITING and retried.place == f"mapping {name}"
    (again,) = consumer.take(1, 1, 1.0, 5.0)
    assert again.data.endswith(b"payload")
    assert other.drain(others) == []
    app.commit()
    consumer.remove()


def test_a_subscription_that_cannot_be_inquired_is_inquired_once(
    mq: Workplace, send: Send, letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without the authority retries many dead letters of a mapping. Each stays, with the reason."""
    for _ in range(3):
        send("ANY", put_by="orders")
    connection, inquired = mq.connect(), []

    def subscriptions(name: str) -> Any:
        inquired.append(name)
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "no authority")

    monkeypatch.setattr(connection, "subscriptions", subscriptions)
    retried = list(DeadLetterQueue(connection).retry(ALL, sources={"orders": ""}, timeout=0))
    assert [letter.outcome for letter in retried] == [RetryOutcome.STAYED] * 3
    assert all("cannot be inquired (MQRC_NOT_AUTHORIZED" in letter.failure for letter in retried), retried
    assert inquired == ["mqbridge mapping orders"]


def test_concurrent_retries_put_each_dead_letter_once(
    mq: Workplace, queue: str, send: Send, other: Application, letters: str
) -> None:
    for number in range(20):
        send(queue, mq.manager, bytes([number]))
    first, second = (DeadLetterQueue(mq.connect()).retry(ALL) for _ in range(2))
    finished = [False, False]
    while not all(finished):
        for index, retries in enumerate((first, second)):
            finished[index] = next(retries, None) is None
    assert sorted(other.all(queue)) == [bytes([number]) for number in range(20)]
    assert other.all(letters) == []


def test_an_uncommitted_retry_changes_nothing(
    mq: Workplace, queue: str, send: Send, dlq: DeadLetterQueue, other: Application, letters: str
) -> None:
    """A connection that ends during a retry leaves the dead letter on the queue, and puts nothing."""
    send(queue, mq.manager)
    connection = mq.connect()
    for _ in DeadLetterQueue(connection).take(ALL):
        assert other.all(letters) == []
    connection.backout()
    assert len(list(dlq.browse(ALL))) == 1


def test_a_dead_letter_of_a_transmission_queue_goes_to_the_destination_in_its_header(
    mq: Workplace, queue: str, dlq: DeadLetterQueue, send: Send, other: Application
) -> None:
    embedded = MQMD(Format=b"MYFMT", Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=1208, MsgId=b"e" * 24)
    header = MQXQH(RemoteQName=queue.encode(), RemoteQMgrName=mq.manager.encode(), MsgDesc=embedded)
    send("", "", encode_mqxqh(header) + BODY, Format=cmqc.MQFMT_XMIT_Q_HEADER)
    (retried,) = dlq.retry(ALL)
    assert retried.failure == ""
    message = other.take(queue)
    assert (message.data, message.md.MsgId, message.md.Format.rstrip()) == (BODY, b"e" * 24, b"MYFMT")


@pytest.mark.whole_mqi
def test_a_rejected_copy_for_a_subscription_is_retried_to_its_queue_only(
    mq: Workplace, app: Application, other: Application, letters: str, root: str
) -> None:
    """USEDLQ(YES) and a full queue. The other subscription has received its copy."""
    mq.topic_object(root, "USEDLQ(YES)")
    full = mq.queue("MAXDEPTH(1)")
    other.put(full, b"first")
    handle = other.open_queue(full)
    other.subscribe(f"{root}/a", handle=handle)
    _, elsewhere = other.subscribe(f"{root}/a")
    app.publish(f"{root}/a", BODY, Format=b"MYFMT")
    assert other.drain(elsewhere) == [BODY]
    assert other.all(full) == [b"first"]
    (retried,) = DeadLetterQueue(app.connection).retry(ALL)
    assert (retried.failure, retried.place) == ("", f"queue {full}")
    assert other.drain(elsewhere) == []
    message = other.take(full, cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    chain = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data)
    assert (chain.body, chain.Format.rstrip()) == (BODY, b"MYFMT")


def test_a_rejected_report_is_retried_to_its_queue(
    mq: Workplace, app: Application, other: Application, letters: str
) -> None:
    queue, answers = mq.queue(), mq.queue("PUT(DISABLED)")
    app.put(queue, b"asked", ReplyToQ=answers.encode(), Report=cmqc.MQRO_COA, MsgId=b"m" * 24)
    mq.command(f"ALTER QLOCAL('{answers}') PUT(ENABLED)")
    (retried,) = DeadLetterQueue(app.connection).retry(ALL)
    assert retried.failure == ""
    report = other.take(answers)
    assert (report.md.MsgType, report.md.Feedback, report.md.CorrelId) == (cmqc.MQMT_REPORT, cmqc.MQFB_COA, b"m" * 24)


def test_the_context_of_a_message_is_kept(
    mq: Workplace, queue: str, dlq: DeadLetterQueue, other: Application, letters: str
) -> None:
    other.put(queue, b"x")
    before = other.take(queue).md
    # with its own context, as the bridge puts it
    put_message(other, letters, dead_letter(before, b"x", 2053, queue, mq.manager, OriginContext.of(before)))
    (retried,) = dlq.retry(ALL)
    assert retried.failure == ""
    after = other.take(queue).md
    fields = ("PutApplName", "PutApplType", "UserIdentifier", "MsgId")
    assert [getattr(after, field) for field in fields] == [getattr(before, field) for field in fields]


def test_a_connection_without_authority_for_context_retries_without_it(
    mq: Workplace, queue: str, dlq: DeadLetterQueue, send: Send, other: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    put1 = dlq._connection.put1

    def unauthorized(od: Any, message: Any, options: Any, properties: Any = ()) -> Any:
        if options & cmqc.MQPMO_SET_ALL_CONTEXT:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "SETALL")
        return put1(od, message, options, properties)

    monkeypatch.setattr(dlq._connection, "put1", unauthorized)
    send(queue, mq.manager, msg_id=b"m" * 24)
    (retried,) = dlq.retry(ALL)
    assert retried.failure == "" and other.take(queue).md.MsgId == b"m" * 24


def test_a_letter_of_a_mapping_stays_if_its_subscription_cannot_be_inquired(
    mq: Workplace, queue: str, dlq: DeadLetterQueue, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unauthorized(name: str) -> Any:
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "INQUIRE_SUBSCRIPTION")

    monkeypatch.setattr(dlq._connection, "subscriptions", unauthorized)
    send(queue, mq.manager, put_by="orders")
    (retried,) = dlq.retry(ALL, sources={"orders": ""}, timeout=0)
    assert retried.outcome is RetryOutcome.STAYED
    assert retried.failure.startswith(
        "the subscription of mapping orders cannot be inquired (MQRC_NOT_AUTHORIZED (2035)"
    )


@contextmanager
def on_a_thread(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function in the background. Its argument is an event that ends it."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_message_rejected_again_by_its_mapping_keeps_the_time_of_its_first_dead_lettering(
    mq: Workplace, dlq: DeadLetterQueue, letters: str, other: Application
) -> None:
    source = mq.queue()

    def reject(ended: threading.Event) -> None:
        connection = mq.connect()
        consumer = MessageConsumer(connection, ConsumerSource(mapping="orders", queue=source))
        dead_letters = DeadLetters(connection, letters, "orders", source)
        while not ended.is_set():
            for message in consumer.take(1, 1, 0.1, 0.1):
                dead_letters.put(message.md, message.data, 2053, "full", Destination("TARGET"))
            connection.commit()
        consumer.close()

    old = OriginContext(cmqc.MQAT_UNIX, b"orders", b"20200102", b"03040506")
    md = MQMD(
        MsgId=b"m" * 24, Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=1208, PutDate=b"20200101", PutTime=b"00000000"
    )
    put_message(other, letters, dead_letter(md, BODY, 2053, "TARGET", "", old))
    (first,) = dlq.read(ALL)
    with on_a_thread(reject):
        (retried,) = dlq.retry(ALL, sources={"orders": source}, timeout=PATIENCE)
    (again,) = dlq.read(ALL)
    assert retried.outcome is RetryOutcome.RETURNED and "MQRC_Q_FULL" in retried.failure
    assert retried.place == "TARGET by mapping orders"
    assert header_of(*again[1:]).PutDate == header_of(*first[1:]).PutDate == b"20200102"
    assert again[2][HEADER_LENGTH:] == BODY


def test_a_retried_message_that_its_mapping_accepts_is_reported_as_delivered(
    mq: Workplace, dlq: DeadLetterQueue, send: Send, other: Application
) -> None:
    source = mq.queue()
    send("TARGET", put_by="orders", msg_id=b"m" * 24)
    retrying = dlq.retry(ALL, sources={"orders": source}, timeout=PATIENCE)

    def take(_ended: threading.Event) -> None:
        connection = mq.connect()
        MessageConsumer(connection, ConsumerSource(mapping="orders", queue=source)).take(1, 1, 1.0, PATIENCE)
        connection.commit()

    with on_a_thread(take):
        (retried,) = retrying
    assert retried.outcome is RetryOutcome.DELIVERED
