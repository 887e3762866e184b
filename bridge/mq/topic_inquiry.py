"""Inquiries about the topic tree: levels, retained publications and subscriptions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Protocol

from bridge.administration.answers import RetainedStatus, TopicDetails, TopicNode, TopicSubscription
from bridge.mq.administration import Administration, CommandFailed, PcfResponse
from bridge.mq.mqi import Connection, MQError
from bridge.mqtt.topics import matches, overlap
from bridge.telemetry.identity import AS_IS, ClientNames
from bridge.telemetry.subscription import subscription_name
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFST

#: The maximum number of payload bytes to show.
PAYLOAD_SHOWN = 200
#: The maximum number of messages to read from a PCF reply, which has one for each topic or subscription.
MOST_RESPONSES = 10_000


class TooMany(Exception):
    """The reply has more than MOST_RESPONSES messages. The text is for people."""


class TopicInquiry(Protocol):
    """Inquires about the topics of a queue manager. Call it on the event loop, which it does not block."""

    async def below(self, topic: str | None, after: str | None, rows: int) -> list[TopicNode]:
        """Return the levels directly below a topic string (None for the root), sorted by name.

        Return at most `rows` levels, starting after the name `after` if it is not None. Raises MQError or TooMany.
        """

    async def details(self, topic_filter: str, rows: int, payloads: bool) -> TopicDetails:
        """Return matching retained publications and overlapping subscriptions, at most `rows` each.

        Raises MQError or TooMany.
        """


class PcfTopicInquiry:
    """`TopicInquiry` with PCF commands, on a separate connection and thread for each inquiry.

    The queue manager does not report the sizes and payloads of retained publications, nor whether a topic has lower levels:
    `has_lower` is always true. The unnamed level of `/a` is omitted, because it cannot be distinguished from the root.
    """

    def __init__(self, connect: Callable[[str], Connection], client_names: ClientNames = AS_IS) -> None:
        self._connect = connect
        self._client_names = client_names

    async def below(self, topic: str | None, after: str | None, rows: int) -> list[TopicNode]:
        begin = "" if topic is None else f"{topic}/"
        found = [
            TopicNode(
                name=one.removeprefix(begin),
                topic=one,
                retained=_number(status, cmqcfc.MQIACF_RETAINED_PUBLICATION) == cmqcfc.MQQSO_YES,
                has_lower=True,
                subscriptions=_number(status, cmqc.MQIA_SUB_COUNT),
            )
            for one, status in await asyncio.to_thread(self._statuses, f"{begin}+")
            if one and one.startswith(begin) and (after is None or one.removeprefix(begin) > after)
        ]
        return sorted(found, key=lambda one: one.name)[:rows]

    async def details(self, topic_filter: str, rows: int, payloads: bool) -> TopicDetails:
        return await asyncio.to_thread(self._details, topic_filter, rows)

    def _details(self, topic_filter: str, rows: int) -> TopicDetails:
        retained = [
            RetainedStatus(topic=topic, size=-1, persistent=False, publisher="", payload=b"")
            for topic, status in self._statuses(topic_filter)
            # In contrast to MQTT, the queue manager's wildcards also match topics that begin with `$`.
            if matches(topic_filter, topic) and _number(status, cmqcfc.MQIACF_RETAINED_PUBLICATION) == cmqcfc.MQQSO_YES
        ]
        name = MQCFST(cmqcfc.MQCACF_SUB_NAME, b"*")
        responses = self._ask(cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, name, (cmqc.MQRC_NO_SUBSCRIPTION, cmqcfc.MQRCCF_NONE_FOUND))
        subscriptions = [
            one
            for response in responses
            if overlap((one := _subscription(response, self._client_names)).topic_filter, topic_filter)
        ]
        return TopicDetails(
            topic_filter=topic_filter,
            retained=sorted(retained, key=lambda one: one.topic)[:rows],
            subscriptions=sorted(subscriptions, key=lambda one: one.name)[:rows],
            more=max(len(retained), len(subscriptions)) > rows,
        )

    def _statuses(self, topic_filter: str) -> list[tuple[str, PcfResponse]]:
        topic = MQCFST(cmqc.MQCA_TOPIC_STRING, topic_filter.encode())
        nothing = (cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND, cmqcfc.MQRCCF_NONE_FOUND, cmqc.MQRC_UNKNOWN_OBJECT_NAME)
        responses = self._ask(cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS, topic, nothing)
        return [(_text(one, cmqc.MQCA_TOPIC_STRING), one) for one in responses]

    def _ask(self, command: int, named: MQCFST, nothing: Iterable[int]) -> list[PcfResponse]:
        """Run a command. The reason codes in `nothing` mean an empty result. Raises MQError or TooMany."""
        connection = self._connect("topics")
        try:
            responses = Administration(connection).run(command, named, most=MOST_RESPONSES + 1)
        except CommandFailed as error:
            if error.reason in nothing:
                return []
            raise
        finally:
            with contextlib.suppress(MQError):
                connection.disconnect()
        if len(responses) > MOST_RESPONSES:
            raise TooMany(f"there are more than {MOST_RESPONSES} of them, and the queue manager tells all at once")
        return responses


def _subscription(response: PcfResponse, names: ClientNames) -> TopicSubscription:
    name, topic_filter = _text(response, cmqcfc.MQCACF_SUB_NAME), _text(response, cmqc.MQCA_TOPIC_STRING)
    manager = _text(response, cmqcfc.MQCACF_DESTINATION_Q_MGR)
    return TopicSubscription(
        name=name,
        topic_filter=topic_filter,
        user_data=_text(response, cmqcfc.MQCACF_SUB_USER_DATA),
        durable=_number(response, cmqcfc.MQIACF_DURABLE_SUBSCRIPTION) == cmqc.MQSUB_DURABLE_YES,
        client_id=names.client_of(manager) if name == subscription_name(manager, topic_filter) else "",
        destination=_text(response, cmqcfc.MQCACF_DESTINATION),
    )


def _text(response: PcfResponse, parameter: int) -> str:
    value = response.parameters.get(parameter, b"")
    return value.decode("utf-8", "replace").rstrip(" \0") if isinstance(value, bytes) else str(value)


def _number(response: PcfResponse, parameter: int) -> int:
    value = response.parameters.get(parameter, 0)
    return value if isinstance(value, int) else 0
