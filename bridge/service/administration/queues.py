"""Administration of queues and topics through MQI calls: list, browse, put, move, clear and publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from bridge.administration.answers import (
    MessageContent,
    MessagePage,
    MessageRow,
    QueueDetails,
    QueueRow,
    SubscriptionPage,
    TopicDetails,
    TopicNode,
    TopicSubscription,
    counted,
)
from bridge.administration.protocol import Answer, Invalid, NotFound, Refused
from bridge.administration.requests import (
    MAX_ROWS,
    BrowseQueue,
    ClearQueue,
    ListQueues,
    ListSubscriptions,
    ListTopics,
    MoveMessages,
    Publish,
    PutMessage,
    ShowMessage,
    ShowQueue,
    ShowTopic,
)
from bridge.mapping.message_view import MessageView, body_text, descriptor, fields
from bridge.mq.dead_letter import characters, content_of, seconds_of
from bridge.mq.dead_letter_queue import DeadLetterQueue
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError
from bridge.mqtt.topics import topic_filter_error
from bridge.service.administration.access import check_topic
from bridge.service.administration.parts import Parts, answer_of
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, RFH2

T = TypeVar("T")

#: Bytes read of each message of a page, bytes read of a single message, and characters of each body in a page.
PAGE_BYTES: Final = 4_096
MESSAGE_BYTES: Final = 262_144
PAGE_BODY_CHARACTERS: Final = 100
#: Maximum number of body bytes to show, and of messages that may precede a page.
BODY: Final = 65_536
MAX_SKIPPED: Final = 10_000
#: Maximum number of messages that one request moves or deletes, and that one unit of work contains.
MAX_REMOVED: Final = 10_000
_UNIT: Final = 100
_ATTRIBUTES: Final = "CURDEPTH MAXDEPTH IPPROCS OPPROCS USAGE GET PUT DESCR"
_OPEN: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
_BROWSE: Final = (
    cmqc.MQGMO_BROWSE_NEXT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
)
_GET: Final = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
_PUT: Final = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING


# Topics --------------------------------------------------------------------------------------------------------------


async def publish(parts: Parts, request: Publish) -> Answer:
    check_topic(request.topic)
    await parts.queue_manager_connection.run(partial(_publish, request), repeatable=False)
    if request.retain and not request.payload:
        return Answer(lines=[f"cleared the retained publication of {request.topic}"])
    retained = ", retained" if request.retain else ""
    return Answer(lines=[f"published {counted(len(request.payload), 'byte')} to {request.topic}{retained}"])


def _publish(request: Publish, connection: Connection) -> None:
    md = descriptor(request.payload, persistent=request.persistent, priority=None, expiry=None)
    options = cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING | (cmqc.MQPMO_RETAIN if request.retain else 0)
    topic = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=request.topic)
    connection.put1(topic, Message(md, request.payload), options)
    if request.retain and not request.payload:
        connection.clear_retained(request.topic)


async def list_topics(parts: Parts, request: ListTopics) -> list[TopicNode]:
    if request.below is not None and (error := topic_filter_error(request.below or "/")) is not None:
        raise Invalid(f"{request.below!r} is not a valid topic: {error}")
    rows = min(max(request.rows, 1), MAX_ROWS)
    return await answer_of(parts.host, parts.host.topic_inquiry.below(request.below, request.after, rows))


async def show_topic(parts: Parts, request: ShowTopic) -> TopicDetails:
    if (error := topic_filter_error(request.topic_filter)) is not None:
        raise Invalid(f"{request.topic_filter!r} is not a valid topic filter: {error}")
    rows = min(max(request.rows, 1), MAX_ROWS)
    return await answer_of(parts.host, parts.host.topic_inquiry.details(request.topic_filter, rows, request.payloads))


async def list_subscriptions(parts: Parts, request: ListSubscriptions) -> SubscriptionPage:
    if (error := topic_filter_error(request.topic_filter)) is not None:
        raise Invalid(f"topic filter {request.topic_filter[:100]!r} is not valid: {error}")
    details = await answer_of(
        parts.host, parts.host.topic_inquiry.details(request.topic_filter, MAX_ROWS, payloads=False)
    )
    text = request.search.casefold()

    def matches(subscription: TopicSubscription) -> bool:
        return text in subscription.name.casefold() or text in subscription.topic_filter.casefold()

    matching = sorted(
        filter(matches, details.subscriptions), key=lambda subscription: (subscription.name, subscription.topic_filter)
    )
    page = matching[request.skip : request.skip + request.rows]
    return SubscriptionPage(subscriptions=page, found=len(matching), more=details.more)


# Queues --------------------------------------------------------------------------------------------------------------


async def list_queues(parts: Parts, request: ListQueues) -> list[QueueRow]:
    if not request.roles:
        return await parts.queue_manager_connection.run(partial(rows_of_queue, parts, "*"))

    def work(connection: Connection) -> list[QueueRow]:
        names = filter(None, (parts.configuration.transmission_queue, dead_letter_queue_name(parts, connection)))
        return [row for name in names for row in rows_of_queue(parts, name, connection)]

    return await parts.queue_manager_connection.run(work)


async def show_queue(parts: Parts, request: ShowQueue) -> QueueDetails:
    name = _name(request.name)

    def work(connection: Connection) -> QueueDetails:
        (row,) = rows_of_queue(parts, name, connection)
        (attributes,) = _displayed(connection, f"DISPLAY QLOCAL('{name}') ALL")
        handles = None
        (response,) = connection.command(f"DISPLAY QSTATUS('{name}') TYPE(HANDLE) ALL")
        if response.ok or not (row.input_handles or row.output_handles):
            handles = response.objects if response.ok else []
        return QueueDetails(queue=row, attributes=attributes, handles=handles)

    return await parts.queue_manager_connection.run(work)


def _name(name: str) -> str:
    """Return a valid queue name. Raises Refused."""
    if not 0 < len(name) <= 48 or not all(
        character.isascii() and (character.isalnum() or character in "._/%") for character in name
    ):
        raise Invalid(f"{name[:100]!r} is not a queue name: MQRC_UNKNOWN_OBJECT_NAME")
    return name


def _displayed(connection: Connection, command: str) -> list[dict[str, str | int]]:
    (response,) = connection.command(command)
    if not response.ok:
        raise Refused(response.message)
    return response.objects


def rows_of_queue(parts: Parts, name: str, connection: Connection) -> list[QueueRow]:
    roles = {
        dead_letter_queue_name(parts, connection): "dead letters",
        parts.configuration.transmission_queue: "messages for clients",
    }
    quoted = f"'{name}'" if name != "*" else name
    (status,) = connection.command(f"DISPLAY QSTATUS({quoted}) MSGAGE")
    ages = {str(row["QUEUE"]): row.get("MSGAGE") for row in status.objects} if status.ok else {}
    rows = []
    for row in _displayed(connection, f"DISPLAY QLOCAL({quoted}) {_ATTRIBUTES}"):
        own, age = str(row["QUEUE"]), ages.get(str(row["QUEUE"]))
        depth = _int(row.get("CURDEPTH"))
        rows.append(
            QueueRow(
                name=own,
                depth=depth,
                max_depth=_int(row.get("MAXDEPTH")),
                oldest_age=age if isinstance(age, int) and depth else None,
                input_handles=_int(row.get("IPPROCS")),
                output_handles=_int(row.get("OPPROCS")),
                transmission=row.get("USAGE") == "XMITQ",
                get_inhibited=row.get("GET") == "DISABLED",
                put_inhibited=row.get("PUT") == "DISABLED",
                description=str(row.get("DESCR", "")).strip(),
                role=roles.get(own, ""),
            )
        )
    return sorted(rows, key=lambda row: row.name)


def _int(value: str | int | None) -> int:
    return value if isinstance(value, int) else 0


def dead_letter_queue_name(parts: Parts, connection: Connection) -> str:
    """Return the name of the dead-letter queue, or "" if there is none."""
    try:
        return DeadLetterQueue(connection, parts.host.dead_letter_queue).name
    except MQError as error:
        if error.reason != cmqc.MQRC_UNKNOWN_OBJECT_NAME:
            raise
        return ""


# Messages ------------------------------------------------------------------------------------------------------------


async def browse_queue(parts: Parts, request: BrowseQueue) -> MessagePage:
    if request.skip > MAX_SKIPPED:
        raise Invalid(f"at most {MAX_SKIPPED:,} messages can precede a page")
    return await parts.queue_manager_connection.run(partial(_browse, request))


def _browse(request: BrowseQueue, connection: Connection) -> MessagePage:
    rows: list[MessageRow] = []
    repeats: dict[bytes, int] = {}
    options = GetOptions(Options=_BROWSE, MatchOptions=cmqc.MQMO_NONE, MaxLength=PAGE_BYTES)
    for place, message in enumerate(_messages(connection, request.name, options)):
        if place == request.skip + min(request.rows, MAX_ROWS):
            return MessagePage(messages=rows, more=True)
        repeat = repeats.get(message.md.MsgId, 0)
        repeats[message.md.MsgId] = repeat + 1
        if place >= request.skip:
            rows.append(_row(message, repeat, request.payloads))
    return MessagePage(messages=rows, more=False)


def _messages(connection: Connection, queue: str, options: GetOptions) -> Iterator[Got]:
    """Yield messages that match the options, with a browse cursor."""
    handle = connection.open(MQOD(ObjectName=queue), _OPEN)
    try:
        while True:
            yield connection.get(handle, options)
    except MQError as error:
        if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
            raise
    finally:
        connection.close(handle)


def _row(message: Got, repeat: int, payloads: bool) -> MessageRow:
    md, view = message.md, MessageView(message.md, message.data)
    client_id = topic = ""
    for header in view.headers:
        if isinstance(header, MQXQH):
            client_id = characters(header.RemoteQMgrName)
        elif isinstance(header, RFH2):
            topic = topic or str(content_of(header, "mqps").get("Top", ""))
    return MessageRow(
        message_id=md.MsgId.hex().upper(),
        repeat=repeat,
        put_time=seconds_of(md.PutDate, md.PutTime),
        application=characters(md.PutApplName),
        format=characters(md.Format),
        persistent=md.Persistence == cmqc.MQPER_PERSISTENT,
        size=message.DataLength,
        client_id=client_id,
        topic=topic,
        body=body_text(view.body[:PAGE_BODY_CHARACTERS]) if payloads else "",
    )


async def show_message(parts: Parts, request: ShowMessage) -> MessageContent:
    (message_id,) = _message_ids([request.message_id])
    return await parts.queue_manager_connection.run(partial(_message, request, message_id))


def _message(request: ShowMessage, message_id: bytes, connection: Connection) -> MessageContent:
    options = GetOptions(
        Options=_BROWSE, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=message_id, MaxLength=MESSAGE_BYTES
    )
    for repeat, message in enumerate(_messages(connection, request.name, options)):
        if repeat == request.repeat:
            return content_of_message(message.md, message.data, message.DataLength, request.payloads)
    raise NotFound(f"message {request.message_id} is no longer on queue {request.name}")


def _message_ids(ids: Sequence[str]) -> list[bytes]:
    try:
        message_ids = [bytes.fromhex(text) for text in ids]
    except ValueError as error:
        raise Invalid("a MsgId consists of 48 hexadecimal digits") from error
    if any(len(message_id) != cmqc.MQ_MSG_ID_LENGTH for message_id in message_ids):
        raise Invalid("a MsgId consists of 48 hexadecimal digits")
    return message_ids


def content_of_message(md: MQMD, data: bytes, size: int, payloads: bool) -> MessageContent:
    """Return the content of a message for display. `data` may be truncated. `size` is the complete length."""
    view = MessageView(md, data)
    body_size = len(view.body) + size - len(data)
    return MessageContent(
        parts=[(name, list(fields(part))) for name, part in view.parts()],
        size=size,
        body_size=body_size,
        body=body_text(view.body[:BODY]) if payloads else None,
        truncated=body_size > BODY,
    )


# Changes -------------------------------------------------------------------------------------------------------------


async def put_message(parts: Parts, request: PutMessage) -> Answer:
    md = descriptor(request.payload, persistent=request.persistent, priority=None, expiry=None)
    message = Message(md, request.payload)

    def work(connection: Connection) -> None:
        options = cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_FAIL_IF_QUIESCING
        connection.put1(MQOD(ObjectName=request.name), message, options)

    await parts.queue_manager_connection.run(work, repeatable=False)
    return Answer(lines=[f"put a message of {counted(len(request.payload), 'byte')} to queue {request.name}"])


async def move_messages(parts: Parts, request: MoveMessages) -> Answer:
    _check_removal(parts, request.name)
    if request.to == request.name:
        raise Refused(f"the messages are already on queue {request.name}")

    def put(connection: Connection, message: Message) -> None:
        od = MQOD(ObjectName=request.to)
        try:
            connection.put1(od, message, _PUT | cmqc.MQPMO_SET_ALL_CONTEXT)
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            connection.put1(od, message, _PUT)

    work = partial(_remove, request.name, _message_ids(request.ids), put)
    moved, why = await parts.queue_manager_connection.run(work, repeatable=False)
    text = f"moved {counted(moved, 'message')} from queue {request.name} to queue {request.to}"
    if why or moved == 0:
        raise Refused(f"{text}; {why or 'there were no others'}")
    return Answer(lines=[text])


async def clear_queue(parts: Parts, request: ClearQueue) -> Answer:
    _check_removal(parts, request.name)
    work = partial(_remove, request.name, _message_ids(request.ids), None)
    deleted, why = await parts.queue_manager_connection.run(work, repeatable=False)
    text = f"deleted {counted(deleted, 'message')} from queue {request.name}"
    if why or deleted == 0:
        raise Refused(f"{text}; {why or 'there were no others'}")
    return Answer(lines=[text])


def _check_removal(parts: Parts, queue: str) -> None:
    if queue == parts.configuration.transmission_queue:
        raise Refused("the bridge delivers the messages on the transmission queue; purge the client instead")
    if queue.startswith("SYSTEM.") and queue != "SYSTEM.DEAD.LETTER.QUEUE":
        raise Refused(f"queue {queue} belongs to the queue manager or the bridge")


def _remove(
    queue: str, ids: Sequence[bytes], put_copy: Callable[[Connection, Message], None] | None, connection: Connection
) -> tuple[int, str]:
    """Get messages and commit in batches. Return the number of committed messages, and why the rest was not removed."""
    handle = connection.open(
        MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
    )
    count = uncommitted = 0
    try:
        (depth,), _ = connection.inquire(handle, (cmqc.MQIA_CURRENT_Q_DEPTH,))
        message_ids: Sequence[bytes | None] = ids or [None] * min(depth, MAX_REMOVED)
        for message_id in message_ids:
            options = GetOptions(Options=_GET, MatchOptions=cmqc.MQMO_NONE)
            if message_id is not None:
                options = msgspec.structs.replace(options, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=message_id)
            try:
                message = connection.get(handle, options)
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                continue
            if put_copy is not None:
                put_copy(connection, Message(message.md, message.data))
            uncommitted += 1
            if uncommitted == _UNIT:
                connection.commit()
                count, uncommitted = count + uncommitted, 0
        connection.commit()
        count += uncommitted
    except MQError as error:
        if not count:
            raise
        return count, f"then: {error}"
    finally:
        connection.backout()
        connection.close(handle)
    remaining = depth - count if not ids else 0
    return (
        count,
        f"{remaining:,} more are on the queue: repeat the request" if depth > MAX_REMOVED and remaining > 0 else "",
    )
