"""Tests of the functions of a queue manager on which the bridge relies, each with a result and a remedy.

They are for the first run against a real queue manager. They use names that begin with MQBRIDGE.ACCEPTANCE, and remove
everything that they create. Subscriptions and messages of a killed test expire after SUBSCRIPTION_EXPIRY and MESSAGE_EXPIRY.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from bridge.mq.administration import PcfAdministration, open_reply_queue
from bridge.mq.ibm import acceptance_measurements as measurements
from bridge.mq.ibm.acceptance_measurements import Failed, Finding
from bridge.mq.ibm.requirements import (
    HEADERS,
    MAX_MESSAGE_LENGTH,
    PROBE_CLIENT,
    QueueManagerAttributes,
    Requirements,
    alter_queue_manager,
)
from bridge.mq.ibm.requirements_check import has_aliases, missing
from bridge.mq.ibm.transmission import read_transmission, subscription_destination
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, Got, MQError, get_or_none, inquire
from bridge.mq.worker import LOST, raise_if_lost
from bridge.telemetry.identity import ClientNames
from bridge.telemetry.message import Message
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD, MalformedHeader, decode_chain, decode_mqxqh
from bridge.wire.mq.pcf import MQCFIN, MQCFST

PREFIX = "MQBRIDGE.ACCEPTANCE"
#: The user in publications of the tests.
PUBLISHER = "acceptance"
TOPIC = "mqbridge/acceptance"
#: Expiry in tenths of a second.
SUBSCRIPTION_EXPIRY, MESSAGE_EXPIRY = 18_000, 18_000
#: Maximum time for an expected message to arrive, in milliseconds.
WAIT = 10_000
#: The same for each client identifier if there are many.
IDENTIFIER_WAIT = 2_000
#: Characters of client identifiers that are not allowed in MQ object names. Allowed are letters, digits, dot, slash,
#: underscore and percent ("Rules for naming IBM MQ objects").
PUNCTUATION = "-:@=+$#{}[]()<>|~!&*,;^'\" "
#: HBINT from 1 to this many seconds detects a half-open connection in time.
MAX_HEARTBEAT = 60
#: Number of messages in the measurement of the message rate, and in each of its units of work.
RATE_MESSAGES, RATE_UNIT = 1_000, 100
_HEADER = 428


class AcceptanceResult(msgspec.Struct, kw_only=True):
    """The result of one test."""

    test: str
    #: pass, fail or skip
    result: str
    detail: str = ""
    remedy: str = ""
    #: what the result means for the bridge
    meaning: str = ""


class Trials(msgspec.Struct, kw_only=True, frozen=True):
    """Functions for tests that the caller must prepare. None if the configuration has nothing to test."""

    #: connect with a wrong password
    wrong_password: Callable[[], Connection] | None = None
    #: description of a connection that must be rejected -> function that connects in that way
    refused: Mapping[str, Callable[[], Connection]] = {}
    #: connect without TLS, or with a certificate name that the queue manager does not have
    without_tls: Mapping[str, Callable[[], Connection]] = {}
    #: kill a bridge under load and return the findings. Raises Failed
    kill: Callable[[], str] | None = None
    #: number of connections that the bridge needs, or 0 to skip the test
    connections: int = 0
    #: number of durable subscriptions to create
    subscriptions: int = 10_000


class Skipped(Exception):
    """A test that cannot run here. The text is the reason."""


class Acceptance:
    """The tests, on separate connections."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        requirements: Requirements,
        *,
        channel: str = "",
        trials: Trials | None = None,
    ) -> None:
        self._connect = connect
        self._requirements = requirements
        self._channel = channel
        self._trials = trials or Trials()
        self._id = uuid.uuid4().hex[:8].upper()
        self._client = f"{PREFIX}.{self._id}"
        self._topic = f"{TOPIC}/{self._id}"
        self._connection: Connection | None = None
        #: whether DEFXMITQ routes messages to clients. Otherwise queue manager aliases do
        self._by_default = True
        #: a message on the transmission queue that does not begin with an MQXQH, for error messages
        self._without_header = ""
        #: queue manager names of clients to which messages were sent
        self._known_clients: list[str] = []
        #: the transmission queue of a shard, or blank
        self._shard_queue = requirements.transmission_queue if requirements.is_shard else ""
        #: handle of the transmission queue, or None if it cannot be opened
        self._transmissions: int | None = None

    def run(self) -> Iterator[AcceptanceResult]:
        """Yield the result of each test as soon as it is available."""
        tests: tuple[tuple[str, Callable[[], str | Finding], str], ...] = (
            ("connection", self._connects, "nothing else works without it"),
            ("wrong password", self._rejects_wrong_password, "only programs with the password are this user"),
            ("TLS", self._requires_tls, "the bridge's messages cannot be read or changed in transit"),
            ("refusal codes", self._refusals, ""),
            ("connections", self._opens_connections, "all threads of the bridge get a connection"),
            ("objects and authorities", self._objects, "the bridge can start"),
            ("list of subscriptions", self._lists_subscriptions, "the bridge lists all subscriptions at each start"),
            ("channel", self._inquires_channel, "half-open connections are detected, and long messages are transferred"),
            ("syncpoint and backout", self._backs_out, "no message is lost or put twice when a unit of work fails"),
            ("form of message identifiers", self._message_identifiers, ""),
            ("read ahead", lambda: self._measured(measurements.read_ahead), ""),
            ("asynchronous MQPUT1", self._asynchronous_put1, ""),
            ("cost of marked browse", lambda: self._measured(measurements.marked_browse), ""),
            (
                "exclusive use of the transmission queue", self._opens_transmission_queue,
                "only one bridge delivers messages, and no other program takes them",
            ),
            ("publication to a client", self._round_trip, "subscriptions of MQTT clients work"),
            ("user of a publication", self._user_of_publication, ""),
            ("headers on the transmission queue", self._headers, ""),
            ("retained publication", self._retained, "new subscribers receive it, and an empty publication clears it"),
            ("durable subscription", self._durable, "messages wait for disconnected clients"),
            ("client identifiers", self._client_identifiers, "clients with these identifiers can subscribe"),
            (
                "escaped client identifiers", self._escaped_identifiers,
                "with client_identifiers: escaped, clients with any identifier get messages",
            ),
            ("durable subscriptions in large numbers", self._many_subscriptions, ""),
            ("long message", self._long_message, "the longest payload that IBM MQ allows is delivered"),
            ("stale handle", self._stale_handle, "ALTER with FORCE does not stop the bridge"),
            ("message rate", self._rate, "an upper limit for publications of one client"),
            ("kill of a bridge under load", self._kill, "no acknowledged message is lost"),
        )  # fmt: skip
        try:
            for name, test, meaning in tests:
                yield self._outcome(name, test, meaning)
        finally:
            outcome = self._outcome("clean-up", self._clean_up, "the queue manager is as before")
        yield outcome

    def _outcome(self, name: str, test: Callable[[], str | Finding], meaning: str) -> AcceptanceResult:
        """Run a test. Later tests run even if it fails or loses the connection."""
        try:
            finding = test()
        except Skipped as skipped:
            return AcceptanceResult(
                test=name, result="skip", detail=str(skipped), meaning="unknown, because it was not tested"
            )
        except Failed as failed:
            detail, remedy = str(failed), failed.remedy
        except (MQError, MalformedHeader) as error:
            detail, remedy = str(error), "see mqbridge explain and the queue manager's AMQERR01.LOG"
            if isinstance(error, MQError) and error.reason in LOST:
                self._lose()
        except Exception as error:  # an unexpected reply must not end the other tests
            at = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
            remedy = "report this to the developers of the bridge, with the version of the queue manager"
        else:
            if isinstance(finding, Finding):
                return AcceptanceResult(test=name, result="pass", detail=finding.detail, meaning=finding.meaning)
            return AcceptanceResult(test=name, result="pass", detail=finding, meaning=meaning)
        not_so = f"not so: {meaning}" if meaning else "the bridge may not work as documented"
        return AcceptanceResult(test=name, result="fail", detail=detail, remedy=remedy, meaning=not_so)

    def _lose(self) -> None:
        """Replace a lost connection, so that later tests and the clean-up have one."""
        if self._connection is None:
            return
        delivered = self._transmissions is not None
        self._connection, self._transmissions = None, None
        with contextlib.suppress(MQError, Failed, Skipped):
            self._connection = self._connect()
            if delivered:
                self._opens_transmission_queue()

    @property
    def _mq(self) -> Connection:
        if self._connection is None:
            raise Skipped("no connection")
        return self._connection

    # Connection, objects and commands --------------------------------------------------------------------------------

    def _connects(self) -> str:
        start = time.monotonic()
        try:
            self._connection = self._connect()
        except MQError as error:
            remedy = (
                "check channel, CHLAUTH, CONNAUTH, password and TLS; AMQERR01.LOG of the queue manager has the reason"
            )
            raise Failed(str(error), remedy) from error
        return f"connected in {(time.monotonic() - start) * 1000:.0f} ms"

    def _rejects_wrong_password(self) -> str:
        if self._trials.wrong_password is None:
            raise Skipped("the configuration has no password")
        try:
            self._trials.wrong_password().disconnect()
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            return "rejected with MQRC_NOT_AUTHORIZED (2035)"
        raise Failed(
            "the queue manager accepts a wrong password",
            "set CONNAUTH of the queue manager, and CHCKCLNT(REQUIRED) in its AUTHINFO or in the channel's CHLAUTH"
            " record, then REFRESH SECURITY TYPE(CONNAUTH)",
        )

    def _requires_tls(self) -> str:
        if not self._trials.without_tls:
            raise Skipped("the configuration has no section tls")
        reasons = []
        for description, connect in self._trials.without_tls.items():
            try:
                connect().disconnect()
            except MQError as error:
                reasons.append(f"{description}: {cmqc.reason_name(error.reason)} ({error.reason})")
            else:
                raise Failed(
                    f"the queue manager accepts a connection {description}", "set SSLCIPH of the channel, and peer_name"
                )
        return "connected with TLS; rejected " + ", ".join(reasons)

    def _refusals(self) -> Finding:
        """Report the reason codes of rejected connections."""
        if not self._trials.refused:
            raise Skipped("the bridge connects locally")
        reasons = []
        for description, connect in self._trials.refused.items():
            try:
                connect().disconnect()
            except MQError as error:
                reasons.append(f"{description}: {cmqc.reason_name(error.reason)} ({error.reason})")
            else:
                raise Failed(f"a connection to an {description} is accepted", "check which queue manager listens there")
        return Finding(
            ", ".join(reasons),
            "the bridge logs these codes with a hint. It does not regard a single rejected connection as an outage, but also"
            " checks its first connection",
        )

    def _opens_connections(self) -> str:
        """Open as many connections as the bridge, and close them."""
        count = self._trials.connections
        if not count:
            raise Skipped("the number of connections is not limited")
        self._mq  # noqa: B018 a test without a connection is skipped
        connections: list[Connection] = []
        try:
            while len(connections) < count:
                connections.append(self._connect())
        except MQError as error:
            raise Failed(
                f"{len(connections)} of {count} connections, then {cmqc.reason_name(error.reason)} ({error.reason})",
                f"raise MaxChannels in qm.ini, MAXINST and MAXINSTC of the channel to at least {2 * count + 10}",
            ) from error
        finally:
            for connection in connections:
                with contextlib.suppress(MQError):
                    connection.disconnect()
        return f"{count} concurrent connections, in addition to this one"

    def _objects(self) -> str:
        lacking = missing(self._mq, self._requirements)
        if needed := [requirement for requirement in lacking if requirement.needed]:
            raise Failed(
                "; ".join(requirement.what for requirement in needed),
                "; ".join(requirement.remedy for requirement in needed),
            )
        notes = "; ".join(map(str, lacking))
        return f"complete, with notes: {notes}" if notes else "complete"

    def _lists_subscriptions(self) -> str:
        start = time.monotonic()
        with closing(PcfAdministration(self._mq)) as administration:
            number = len(administration.subscriptions())
        return f"{number} subscriptions in {time.monotonic() - start:.1f} s"

    def _inquires_channel(self) -> str:
        """Inquire the channel's attributes with PCF (IBM MQ documentation, "Inquire Channel")."""
        if not self._channel:
            raise Skipped("the configuration has no channel")
        parameters = (
            MQCFST(cmqcfc.MQCACH_CHANNEL_NAME, self._channel.encode()),
            MQCFIN(cmqcfc.MQIACH_CHANNEL_TYPE, cmqc.MQCHT_SVRCONN),
        )
        try:
            with closing(PcfAdministration(self._mq)) as administration:
                response = administration.run(cmqcfc.MQCMD_INQUIRE_CHANNEL, *parameters)[0]
        except MQError as error:
            if error.reason not in (cmqc.MQRC_NOT_AUTHORIZED, cmqcfc.MQRCCF_CHANNEL_NOT_FOUND):
                raise
            raise Skipped(
                f"its attributes cannot be inquired ({error}); hint: SET AUTHREC PROFILE('{self._channel}')"
                f" OBJTYPE(CHANNEL) PRINCIPAL('{self._requirements.user}') AUTHADD(DSP)"
            ) from error
        heartbeat, length = response.number(cmqcfc.MQIACH_HB_INTERVAL), response.number(cmqcfc.MQIACH_MAX_MSG_LENGTH)
        attributes = f"HBINT({heartbeat}) MAXMSGL({length})"
        length_needed = self._requirements.message_length
        if not 0 < heartbeat <= MAX_HEARTBEAT:
            remedy = f"ALTER CHANNEL('{self._channel}') CHLTYPE(SVRCONN) HBINT(10)"
            raise Failed(f"{attributes}: a half-open connection is not detected in time", remedy)
        if length < length_needed:
            remedy = f"ALTER CHANNEL('{self._channel}') CHLTYPE(SVRCONN) MAXMSGL({MAX_MESSAGE_LENGTH})"
            raise Failed(f"{attributes}: clients may publish messages of {length_needed} bytes", remedy)
        return attributes

    def _inquire(self, od: MQOD, selector: int) -> tuple[list[int], list[str]]:
        return inquire(self._mq, od, (selector,), cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING)

    @contextlib.contextmanager
    def _own_queue(self) -> Iterator[tuple[str, int]]:
        """Yield the name of a temporary dynamic queue, and its handle for input."""
        handle, name = open_reply_queue(self._mq, f"{PREFIX}.*")
        try:
            yield name, handle
        finally:
            self._mq.close(handle)

    def _backs_out(self) -> str:
        with self._own_queue() as (name, handle):
            for ends, is_left in ((self._mq.backout, False), (self._mq.commit, True)):
                self._mq.put1(MQOD(ObjectName=name), _message(b"x"), cmqc.MQPMO_SYNCPOINT)
                ends()
                if (get_or_none(self._mq, handle, GetOptions()) is not None) != is_left:
                    raise Failed(f"a message that was {'committed is not' if is_left else 'backed out is'} there")
        return "a message exists after MQCMIT, and not after MQBACK"

    def _message_identifiers(self) -> Finding:
        """Examine the MsgIds that two connections create."""
        connection, other = self._mq, self._connect()
        try:
            with self._own_queue() as (name, _):
                message = measurements.message_of(MESSAGE_EXPIRY)
                msg_ids = measurements.fill(connection, name, message)
                msg_ids += measurements.fill(other, name, message, measurements.UNIT)
        finally:
            with contextlib.suppress(MQError):
                other.disconnect()
        return measurements.message_identifiers(msg_ids)

    def _measured(self, measurement: Callable[[Connection, str], Finding]) -> Finding:
        """Return the result of a measurement on a queue with messages."""
        with self._own_queue() as (name, _):
            measurements.fill(self._mq, name, measurements.message_of(MESSAGE_EXPIRY))
            return measurement(self._mq, name)

    def _asynchronous_put1(self) -> Finding:
        with self._own_queue() as (name, _):
            return measurements.asynchronous_put1(self._mq, name, measurements.message_of(MESSAGE_EXPIRY))

    # Messages to clients ---------------------------------------------------------------------------------------------

    def _opens_transmission_queue(self) -> str:
        """Open the transmission queue like the bridge, so that no bridge gets the messages of the tests."""
        default = QueueManagerAttributes.of(self._mq).default_route
        self._by_default = self._requirements.is_shard or default == self._requirements.transmission_queue
        if not self._by_default:
            self._client = PROBE_CLIENT
        if not self._by_default and not self._has_aliases():
            raise Failed(
                f"DEFXMITQ is {default or 'blank'}, so the identifiers of these tests do not lead to"
                f" {self._requirements.transmission_queue}, and no messages are sent",
                f"{alter_queue_manager('DEFXMITQ', self._requirements.transmission_queue)}, unless DEFXMITQ routes to other"
                " queue managers. Then run the script of mqbridge mqsc-script --aliases",
            )
        options = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
        try:
            self._transmissions = self._mq.open(MQOD(ObjectName=self._requirements.transmission_queue), options)
        except MQError as error:
            if error.reason != cmqc.MQRC_OBJECT_IN_USE:
                raise
            raise Skipped(
                "a bridge runs on this queue manager; hint: stop it for the tests that send messages"
            ) from error
        if not self._by_default:
            return f"the queue is free. Only the queue manager alias of client {PROBE_CLIENT} is tested"
        return "the queue is free"

    def _has_aliases(self) -> bool:
        try:
            with closing(PcfAdministration(self._mq)) as administration:
                return has_aliases(administration, self._requirements.transmission_queue)
        except MQError as error:
            raise_if_lost(error)
            return False

    def _needs_default_route(self) -> None:
        """Raise Skipped if messages for clients without a queue manager alias go to another queue."""
        if not self._by_default:
            raise Skipped(f"only client {PROBE_CLIENT} has a queue manager alias")

    def _destination(self, client: str, connection: Connection | None = None) -> int:
        if self._transmissions is None:
            raise Skipped("the transmission queue is not open")
        od = subscription_destination(client, self._shard_queue)
        return (connection or self._mq).open(od, cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING)

    def _subscribe(self, options: int, topic: str, client: str = "", connection: Connection | None = None) -> int:
        """Subscribe for a client like the bridge. Return the handle of the subscription."""
        used = connection or self._mq
        client = client or self._client
        destination = self._destination(client, used)
        sd = MQSD(
            Options=options | cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_ANY_USERID | cmqc.MQSO_FAIL_IF_QUIESCING,
            ObjectString=topic,
            SubName=f"{client}:{topic}",
            SubUserData="1",
            SubExpiry=SUBSCRIPTION_EXPIRY,
        )
        try:
            return used.subscribe(sd, destination)[0]
        finally:
            used.close(destination)

    @contextlib.contextmanager
    def _subscribed(self, topic: str, client: str = "") -> Iterator[None]:
        """Keep a non-durable subscription during the block."""
        handle = self._subscribe(cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE, topic, client)
        try:
            yield
        finally:
            self._mq.close(handle)

    def _publish(self, topic: str, data: bytes, options: int = 0) -> None:
        """Publish like the bridge: under syncpoint, with the user of the client in the message."""
        opening = cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_FAIL_IF_QUIESCING
        handle = self._mq.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic), opening)
        try:
            options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_SET_IDENTITY_CONTEXT
            self._mq.put(handle, _message(data, UserIdentifier=PUBLISHER.encode()), options)
            self._mq.commit()
        except MQError:
            self._mq.backout()
            raise
        finally:
            self._mq.close(handle)

    def _next(self, client: str, wait: int) -> Got | None:
        """Get the next message for a client from the transmission queue. Return None if none arrives in `wait` ms."""
        assert self._transmissions is not None
        common = cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
        common |= cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
        step = cmqc.MQGMO_BROWSE_FIRST
        until = time.monotonic() + wait / 1000
        while True:
            remaining = max(0, int((until - time.monotonic()) * 1000))
            options = GetOptions(Options=common | cmqc.MQGMO_WAIT | step, WaitInterval=remaining, MaxLength=_HEADER)
            message = get_or_none(self._mq, self._transmissions, options)
            if message is None:
                return None
            step = cmqc.MQGMO_BROWSE_NEXT
            if message.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:
                self._without_header = (
                    f", and a message with Format {message.md.Format!r} begins with {message.data[:4]!r}"
                )
            if _client_of(message) == client:
                taking = GetOptions(
                    Options=cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2,
                    MsgId=message.md.MsgId,
                )
                return self._mq.get(self._transmissions, taking)

    def _expect(self, data: bytes, client: str = "", wait: int = WAIT) -> Got:
        client = client or self._client
        message = self._next(client, wait)
        if message is None:
            raise Failed(
                f"no message for client {client} on {self._requirements.transmission_queue}{self._without_header}",
                "report this to the developers of the bridge, with the version of the queue manager"
                if self._without_header
                else "check DEFXMITQ, and whether another program gets messages from the queue",
            )
        if not message.data.endswith(data):
            raise Failed(f"a message of {len(message.data)} bytes that does not end with the payload published")
        return message

    def _round_trip(self) -> str:
        with self._subscribed(self._topic):
            self._publish(self._topic, b"round trip")
            message = self._expect(b"round trip")
        queued = read_transmission(message, queue=self._shard_queue)
        if (queued.topic, queued.user_data) != (self._topic, "1"):
            raise Failed(
                f"the message has topic {queued.topic!r} and subscription user data {queued.user_data!r}",
                "report this to the developers of the bridge, with the version of the queue manager",
            )
        return "topic and subscription user data arrive in MQXQH and RFH2"

    def _user_of_publication(self) -> Finding:
        """Examine the user in the message of a subscriber (IBM MQ documentation, "Subscription security")."""
        with self._subscribed(self._topic):
            self._publish(self._topic, b"user")
            message = self._expect(b"user")
        user = decode_mqxqh(message.data).MsgDesc.UserIdentifier.rstrip(b" \0").decode("utf-8", "replace")
        if user == PUBLISHER:
            return Finding(
                f"{user!r}, the user of the publisher",
                "applications that subscribe see which client has published",
            )
        return Finding(
            f"{user!r}, the user of the subscription (the publisher put {PUBLISHER!r})",
            "applications that subscribe see their own user, unless they use MQSO_SET_IDENTITY_CONTEXT, and mappings from"
            " topics see the bridge's user. The RFH2 contains the client identifier of the publisher",
        )

    def _headers(self) -> Finding:
        """Examine the headers of a message on the transmission queue, and the position of its RFH2."""
        with self._subscribed(self._topic):
            self._publish(self._topic, b"headers")
            message = self._expect(b"headers")
        embedded = decode_mqxqh(message.data).MsgDesc
        described = embedded.Format, embedded.Encoding, embedded.CodedCharSetId
        chain = decode_chain(*described, message.data[_HEADER:], strict=False)
        order = ["MQXQH", *(type(header).__name__ for header in chain.headers)]
        if "RFH2" not in order:
            begin = message.data[_HEADER : _HEADER + 4]
            raise Failed(
                f"{', then '.join(order)}, then {begin!r} with Format {embedded.Format!r}; no RFH2",
                "report this to the developers of the bridge, with the version of the queue manager and PROPCTL of the queue",
            )
        same = (
            "the embedded MsgId" if message.md.CorrelId == embedded.MsgId else "another value than the embedded MsgId"
        )
        new = "a new MsgId" if message.md.MsgId != embedded.MsgId else "the MsgId of the publication"
        return Finding(
            f"{', then '.join(order)}, {len(message.data)} bytes in all; the outer MQMD has {new}, and as CorrelId {same}",
            "the bridge finds topic and properties without a conversion",
        )

    def _retained(self) -> str:
        topic = f"{self._topic}/retained"
        self._publish(topic, b"retained", cmqc.MQPMO_RETAIN)
        with closing(PcfAdministration(self._mq)) as administration:
            try:
                with self._subscribed(topic):
                    self._expect(b"retained")
                administration.clear_retained(topic)
                with self._subscribed(topic):
                    message = self._next(self._client, 1000)
            finally:
                with contextlib.suppress(MQError):
                    administration.clear_retained(topic)
        if message is not None:
            raise Failed("CLEAR TOPICSTR CLRTYPE(RETAINED) does not clear the retained publication")
        return "sent to a new subscription, and cleared by CLEAR TOPICSTR"

    def _durable(self) -> str:
        topic = f"{self._topic}/durable"
        self._mq.close(self._subscribe(cmqc.MQSO_CREATE | cmqc.MQSO_DURABLE, topic))
        self._publish(topic, b"while away")
        self._expect(b"while away")
        other = self._connect()
        try:
            handle = self._subscribe(cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE, topic, connection=other)
            other.close(handle, cmqc.MQCO_REMOVE_SUB)
        finally:
            with contextlib.suppress(MQError):
                other.disconnect()
        if names := self._own_subscriptions():
            raise Failed(f"subscriptions are left after MQCO_REMOVE_SUB: {', '.join(names)}")
        return "messages wait without a connection, and another connection resumes and removes the subscription"

    def _client_identifiers(self) -> str:
        failed = self._unreachable({repr(character): f"{self._client}{character}X" for character in PUNCTUATION})
        if failed:
            raise Failed(
                f"clients with these characters in their identifier receive no messages: {', '.join(failed)}",
                "set client_identifiers: escaped, or give such clients other identifiers: letters, digits and . _ / % are"
                " always accepted",
            )
        return f"accepted: letters, digits, . _ / % and {' '.join(PUNCTUATION.strip())} and blank"

    def _escaped_identifiers(self) -> str:
        names = ClientNames(True)
        clients = [f"{self._client}{character}X" for character in ("-", ":", "%", "ü")]
        failed = self._unreachable({client: names.name_of(client) for client in clients})
        if failed:
            raise Failed(
                f"clients with escaped identifiers receive no messages: {', '.join(failed)}",
                "report this to the developers of the bridge, with the version of the queue manager",
            )
        return f"{', '.join(names.name_of(client)[len(self._client) :] for client in clients)} get messages"

    def _unreachable(self, clients: Mapping[str, str]) -> list[str]:
        """Send a message to each client, with its queue manager name. Return the failures, with reasons."""
        self._needs_default_route()
        topic, failed = f"{self._topic}/identifier", []
        self._known_clients += clients.values()
        for label, client in clients.items():
            try:
                with self._subscribed(topic, client):
                    self._publish(topic, b"identifier")
                    self._expect(b"identifier", client, IDENTIFIER_WAIT)
            except MQError as error:
                if error.reason in LOST:
                    raise
                failed.append(f"{label}: {cmqc.reason_name(error.reason)} ({error.reason})")
            except Failed:
                failed.append(f"{label}: no message")
        return failed

    def _many_subscriptions(self) -> Finding:
        """Create durable subscriptions, list them, and remove them."""
        number = self._trials.subscriptions
        destination = self._destination(self._client)
        start = time.monotonic()
        try:
            for count in range(number):
                self._mq.close(self._many(cmqc.MQSO_CREATE, count, destination))
            created = time.monotonic()
            with closing(PcfAdministration(self._mq)) as administration:
                listed = len(administration.subscriptions(f"{self._client}:{self._topic}/many/*"))
            listed_at = time.monotonic()
            for count in range(number):
                self._mq.close(self._many(cmqc.MQSO_RESUME, count, destination), cmqc.MQCO_REMOVE_SUB)
            removed_at = time.monotonic()
        finally:
            with contextlib.suppress(MQError):
                self._mq.close(destination)
        if listed != number:
            raise Failed(
                f"{listed} of {number} subscriptions are listed",
                f"MAXDEPTH of the model queue for replies, SYSTEM.MQTT.REPLY.MODEL, must be at least {number}",
            )
        return Finding(
            f"{number} created in {created - start:.1f} s, listed in {listed_at - created:.1f} s,"
            f" removed in {removed_at - listed_at:.1f} s",
            "the bridge lists subscriptions at each start and takeover. When a fleet subscribes for the first time, that"
            " takes as long as their creation here",
        )

    def _many(self, verb: int, count: int, destination: int) -> int:
        topic = f"{self._topic}/many/{count}"
        sd = MQSD(
            Options=verb | cmqc.MQSO_DURABLE | cmqc.MQSO_ANY_USERID | cmqc.MQSO_FAIL_IF_QUIESCING,
            ObjectString=topic,
            SubName=f"{self._client}:{topic}",
            SubUserData="1",
            SubExpiry=SUBSCRIPTION_EXPIRY,
        )
        return self._mq.subscribe(sd, destination)[0]

    def _long_message(self) -> str:
        # A message that is too long for the transmission queue would go to the dead-letter queue.
        objects = MQOD(ObjectType=cmqc.MQOT_Q_MGR), MQOD(ObjectName=self._requirements.transmission_queue)
        length = min(self._inquire(od, cmqc.MQIA_MAX_MSG_LENGTH)[0][0] for od in objects) - HEADERS
        start = time.monotonic()
        with self._subscribed(f"{self._topic}/long"):
            try:
                self._publish(f"{self._topic}/long", b"x" * length)
                self._expect(b"x" * length)
            except MQError as error:
                raise Failed(
                    f"a message of {length} bytes, which MAXMSGL of queue manager and queue allow: {error}",
                    f"set MAXMSGL({MAX_MESSAGE_LENGTH}) for the channel",
                ) from error
        return f"put and got {length} bytes in {time.monotonic() - start:.1f} s"

    # Handles and rate ------------------------------------------------------------------------------------------------

    def _stale_handle(self) -> str:
        """Alter a queue with FORCE while it is open, and reopen it (IBM MQ documentation, reason code 2041)."""
        name = f"{PREFIX}.QUEUE.{self._id}"
        (defined,) = self._mq.command(f"DEFINE QLOCAL('{name}')")
        if not defined.ok:
            raise Skipped(f"the user may not define a queue: {defined.message}")
        try:
            handle = self._mq.open(MQOD(ObjectName=name), cmqc.MQOO_OUTPUT)
            (altered,) = self._mq.command(f"ALTER QLOCAL('{name}') DEFPSIST(YES) FORCE")
            if not altered.ok:
                raise Skipped(f"the user may not alter a queue: {altered.message}")
            stale = cmqc.MQRC_NONE
            try:
                self._mq.put(handle, _message(b"x"))
            except MQError as error:
                stale = error.reason
            self._mq.close(handle)
            self._mq.put1(MQOD(ObjectName=name), _message(b"x"))
        finally:
            self._mq.command(f"CLEAR QLOCAL('{name}')")
            (deleted,) = self._mq.command(f"DELETE QLOCAL('{name}')")
        if not deleted.ok:
            raise Failed(f"queue {name} is left: {deleted.message}", f"DELETE QLOCAL('{name}') PURGE")
        if stale not in (cmqc.MQRC_NONE, cmqc.MQRC_OBJECT_CHANGED):
            raise Failed(f"a handle of an altered queue returns {cmqc.reason_name(stale)} ({stale})")
        return "MQRC_OBJECT_CHANGED (2041), and a new handle works" if stale else "the handle stays valid"

    def _rate(self) -> str:
        number = 20
        start = time.monotonic()
        for _ in range(number):
            od = MQOD(ObjectType=cmqc.MQOT_Q_MGR)
            self._mq.close(self._mq.open(od, cmqc.MQOO_INQUIRE))
        trip = (time.monotonic() - start) / number / 2
        with self._own_queue() as (name, _):
            handle = self._mq.open(MQOD(ObjectName=name), cmqc.MQOO_OUTPUT)
            start = time.monotonic()
            for count in range(1, RATE_MESSAGES + 1):
                self._mq.put(handle, _message(b"x" * 200), cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_ASYNC_RESPONSE)
                if count % RATE_UNIT == 0:
                    self._mq.commit()
            seconds = time.monotonic() - start
            self._mq.close(handle)
        rate = f"{RATE_MESSAGES / seconds:,.0f} non-persistent messages/s over one connection"
        return f"{rate}, with a round trip of {trip * 1000:.2f} ms"

    def _kill(self) -> str:
        """Kill a bridge under load. The transmission queue is closed meanwhile, because that bridge needs it."""
        if self._trials.kill is None:
            raise Skipped("no function to start a bridge")
        self._needs_default_route()
        if self._transmissions is None:
            raise Skipped("the transmission queue is not open")
        self._mq.close(self._transmissions)
        self._transmissions = None
        try:
            return self._trials.kill()
        finally:
            with contextlib.suppress(Failed, Skipped):
                self._opens_transmission_queue()

    # Clean-up --------------------------------------------------------------------------------------------------------

    def _own_subscriptions(self) -> list[str]:
        with closing(PcfAdministration(self._mq)) as administration:
            return [entry.name for entry in administration.subscriptions(f"{self._client}*")]

    def _clean_up(self) -> str:
        """Remove subscriptions and messages of failed tests, and disconnect."""
        try:
            names = self._own_subscriptions()
            for name in names:
                client, _, topic = name.partition(":")
                handle = self._subscribe(cmqc.MQSO_ALTER | cmqc.MQSO_DURABLE, topic, client)
                self._mq.close(handle, cmqc.MQCO_REMOVE_SUB)
            count = 0
            if self._transmissions is not None:
                for client in dict.fromkeys((self._client, *self._known_clients)):
                    while self._next(client, 0) is not None:
                        count += 1
            if self._own_subscriptions():
                raise Failed(
                    "some subscriptions remain", f"DISPLAY SUB('{PREFIX}*') lists them, DELETE SUB removes them"
                )
        finally:
            if self._connection is not None:
                with contextlib.suppress(MQError):
                    self._connection.disconnect()
                self._connection = None
        return f"nothing is left ({len(names)} subscriptions and {count} messages of failed tests removed)"


def traffic(connection: Connection, channel: str, transmission_queue: str) -> list[str]:
    """Return descriptions of other uses of a queue manager: other applications, and messages for clients.

    Connections over the bridge's channel are not counted, because they include the connection of the tests. A running bridge
    is detected in another way. Raises MQError if the connection is lost.
    """
    others = []
    (response,) = connection.command("DISPLAY CONN(*) TYPE(CONN) APPLTAG APPLTYPE CHANNEL USERID")
    if not response.ok:
        others.append(f"its connections cannot be displayed ({response.message})")
    names: dict[str, int] = {}
    for row in response.objects:
        name = str(row.get("APPLTAG", "")).strip()
        # With pymqi, APPLTAG is the name of the program.
        own = ("mqbridge", Path(sys.executable).name)
        of_bridge = str(row.get("CHANNEL", "")).strip() == channel if channel else name.startswith(own)
        if row.get("APPLTYPE") == "USER" and not of_bridge:
            names[name] = names.get(name, 0) + 1
    if names:
        most = sorted(names, key=lambda name: -names[name])[:3]
        others.append(f"{sum(names.values())} other connections, for example of {', '.join(most)}")
    try:
        options = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
        depth = inquire(connection, MQOD(ObjectName=transmission_queue), (cmqc.MQIA_CURRENT_Q_DEPTH,), options)[0][0]
    except MQError as error:
        raise_if_lost(error)
        return others  # the tests report it
    if depth:
        others.append(f"{depth} messages for clients are on {transmission_queue}")
    return others


def _message(data: bytes, **md: bytes) -> Message:
    described = MQMD(Persistence=cmqc.MQPER_NOT_PERSISTENT, Expiry=MESSAGE_EXPIRY)
    return Message(msgspec.structs.replace(described, **md), data)


def _client_of(message: Got) -> str:
    try:
        return decode_mqxqh(message.data).RemoteQMgrName.decode("utf-8", "replace").rstrip(" \0")
    except MalformedHeader:
        return ""
