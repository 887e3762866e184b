"""The first run against a real queue manager: tests of what the bridge relies on, each with a result and a remedy.

The tests use names that begin with MQBRIDGE.ACCEPTANCE, and remove everything that they create. What a test that was killed
leaves behind expires: subscriptions after SUBSCRIPTION_EXPIRY, messages after MESSAGE_EXPIRY.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec

from bridge.mq.administration import Administration, open_reply_queue
from bridge.mq.ibm.requirements import HEADERS, MAX_MESSAGE_LENGTH, Requirements
from bridge.mq.ibm.requirements_check import missing
from bridge.mq.ibm.transmission import read_transmission
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, Got, MQError, get_or_none, inquire
from bridge.telemetry.message import Message
from bridge.telemetry.subscription import PUBLICATION_QUEUE
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD, MalformedHeader, decode_mqxqh
from bridge.wire.mq.pcf import MQCFIN, MQCFST

PREFIX = "MQBRIDGE.ACCEPTANCE"
TOPIC = "mqbridge/acceptance"
#: In tenths of a second.
SUBSCRIPTION_EXPIRY, MESSAGE_EXPIRY = 18_000, 18_000
#: Milliseconds to wait for a message that must come.
WAIT = 10_000
#: Characters that MQTT clients have in their identifiers, besides letters, digits, dot, slash, underscore and percent, which
#: are the characters of MQ object names ("Rules for naming IBM MQ objects").
PUNCTUATION = "-:@=+$#{}[]()<>|~!&*,;^'\" "
#: HBINT from 1 to this many seconds detects a half-open connection in time.
MAX_HEARTBEAT = 60
#: Messages of the measurement of the message rate, and of each unit of work of it.
RATE_MESSAGES, RATE_UNIT = 1_000, 100
_HEADER = 428


class Outcome(msgspec.Struct, kw_only=True):
    """The result of one test."""

    test: str
    #: pass, fail or skip
    result: str
    detail: str = ""
    remedy: str = ""


class Skipped(Exception):
    """A test that cannot run here; the text is the reason."""


class Failed(Exception):
    """A test that failed: what is wrong, and the remedy."""

    def __init__(self, detail: str, remedy: str = "") -> None:
        super().__init__(detail)
        self.remedy = remedy


class Acceptance:
    """The tests, on connections of their own."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        requirements: Requirements,
        *,
        channel: str = "",
        wrong_password: Callable[[], Connection] | None = None,
    ) -> None:
        """Prepare the tests. `wrong_password` connects with a wrong password; None if the bridge has no password."""
        self._connect = connect
        self._requirements = requirements
        self._channel = channel
        self._wrong_password = wrong_password
        self._id = uuid.uuid4().hex[:8].upper()
        self._client = f"{PREFIX}.{self._id}"
        self._topic = f"{TOPIC}/{self._id}"
        self._connection: Connection | None = None
        #: handle of the transmission queue; None if it cannot be opened
        self._transmissions: int | None = None
        #: whether messages to clients arrive on the transmission queue
        self._delivers = False

    def run(self) -> Iterator[Outcome]:
        """Yield the result of each test as soon as it is there."""
        tests: tuple[tuple[str, Callable[[], str]], ...] = (
            ("connection", self._connects),
            ("wrong password", self._rejects_wrong_password),
            ("objects and authorities", self._objects),
            ("list of subscriptions", self._lists_subscriptions),
            ("channel", self._inquires_channel),
            ("syncpoint and backout", self._backs_out),
            ("exclusive use of the transmission queue", self._opens_transmission_queue),
            ("publication to a client", self._round_trip),
            ("retained publication", self._retained),
            ("durable subscription", self._durable),
            ("client identifiers", self._client_identifiers),
            ("long message", self._long_message),
            ("stale handle", self._stale_handle),
            ("message rate", self._rate),
        )
        try:
            for name, test in tests:
                yield self._outcome(name, test)
        finally:
            outcome = self._outcome("clean-up", self._clean_up)
        yield outcome

    def _outcome(self, name: str, test: Callable[[], str]) -> Outcome:
        try:
            return Outcome(test=name, result="pass", detail=test())
        except Skipped as skipped:
            return Outcome(test=name, result="skip", detail=str(skipped))
        except Failed as failed:
            return Outcome(test=name, result="fail", detail=str(failed), remedy=failed.remedy)
        except MQError as error:
            remedy = "see mqbridge explain and the queue manager's AMQERR01.LOG"
            return Outcome(test=name, result="fail", detail=str(error), remedy=remedy)

    @property
    def _mq(self) -> Connection:
        if self._connection is None:
            raise Skipped("there is no connection")
        return self._connection

    # Connection, objects and commands --------------------------------------------------------------------------------

    def _connects(self) -> str:
        begun = time.monotonic()
        try:
            self._connection = self._connect()
        except MQError as error:
            remedy = (
                "check channel, CHLAUTH, CONNAUTH, password and TLS; AMQERR01.LOG of the queue manager has the reason"
            )
            raise Failed(str(error), remedy) from error
        return f"connected in {(time.monotonic() - begun) * 1000:.0f} ms"

    def _rejects_wrong_password(self) -> str:
        if self._wrong_password is None:
            raise Skipped("the configuration has no password")
        try:
            self._wrong_password().disconnect()
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            return "rejected with MQRC_NOT_AUTHORIZED (2035)"
        raise Failed(
            "the queue manager accepts a wrong password",
            "set CONNAUTH of the queue manager, and CHCKCLNT(REQUIRED) in its AUTHINFO or in the CHLAUTH record of the"
            " channel, then REFRESH SECURITY TYPE(CONNAUTH)",
        )

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
        begun = time.monotonic()
        with closing(Administration(self._mq)) as administration:
            number = len(administration.subscriptions())
        return f"{number} subscriptions in {time.monotonic() - begun:.1f} s"

    def _inquires_channel(self) -> str:
        """Inquire the channel's attributes by PCF (IBM MQ documentation, "Inquire Channel")."""
        if not self._channel:
            raise Skipped("the configuration names no channel")
        parameters = (
            MQCFST(cmqcfc.MQCACH_CHANNEL_NAME, self._channel.encode()),
            MQCFIN(cmqcfc.MQIACH_CHANNEL_TYPE, cmqc.MQCHT_SVRCONN),
        )
        try:
            with closing(Administration(self._mq)) as administration:
                found = administration.run(cmqcfc.MQCMD_INQUIRE_CHANNEL, *parameters)[0]
        except MQError as error:
            if error.reason not in (cmqc.MQRC_NOT_AUTHORIZED, cmqcfc.MQRCCF_CHANNEL_NOT_FOUND):
                raise
            raise Skipped(
                f"its attributes cannot be inquired ({error}); with SET AUTHREC PROFILE('{self._channel}')"
                f" OBJTYPE(CHANNEL) PRINCIPAL('{self._requirements.user}') AUTHADD(DSP) they can"
            ) from error
        heartbeat, length = found.number(cmqcfc.MQIACH_HB_INTERVAL), found.number(cmqcfc.MQIACH_MAX_MSG_LENGTH)
        shown = f"HBINT({heartbeat}) MAXMSGL({length})"
        wanted = self._requirements.message_length
        if not 0 < heartbeat <= MAX_HEARTBEAT:
            remedy = f"ALTER CHANNEL('{self._channel}') CHLTYPE(SVRCONN) HBINT(10)"
            raise Failed(f"{shown}: a connection that is half open is not detected in time", remedy)
        if length < wanted:
            remedy = f"ALTER CHANNEL('{self._channel}') CHLTYPE(SVRCONN) MAXMSGL({MAX_MESSAGE_LENGTH})"
            raise Failed(f"{shown}: clients may publish messages of {wanted} bytes", remedy)
        return shown

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
            for ends, left in ((self._mq.backout, False), (self._mq.commit, True)):
                self._mq.put1(MQOD(ObjectName=name), _message(b"x"), cmqc.MQPMO_SYNCPOINT)
                ends()
                if (get_or_none(self._mq, handle, GetOptions()) is not None) != left:
                    raise Failed(f"a message that was {'committed is not' if left else 'backed out is'} there")
        return "a message is there after MQCMIT, and not after MQBACK"

    # Messages to clients ---------------------------------------------------------------------------------------------

    def _opens_transmission_queue(self) -> str:
        """Open the transmission queue as the bridge does, so that no bridge takes the messages of the tests."""
        (default,) = self._inquire(MQOD(ObjectType=cmqc.MQOT_Q_MGR), cmqc.MQCA_DEF_XMIT_Q_NAME)[1]
        if default.rstrip(" \0") != self._requirements.transmission_queue:
            raise Failed(
                f"messages to clients go to {default.rstrip()}, so no messages are sent",
                f"ALTER QMGR DEFXMITQ('{self._requirements.transmission_queue}')",
            )
        options = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
        try:
            self._transmissions = self._mq.open(MQOD(ObjectName=self._requirements.transmission_queue), options)
        except MQError as error:
            if error.reason != cmqc.MQRC_OBJECT_IN_USE:
                raise
            raise Skipped("a bridge runs on this queue manager; stop it for the tests that send messages") from error
        return "the queue is free"

    def _destination(self, client: str, connection: Connection | None = None) -> int:
        if self._transmissions is None:
            raise Skipped("the transmission queue is not open")
        od = MQOD(ObjectName=PUBLICATION_QUEUE, ObjectQMgrName=client)
        return (connection or self._mq).open(od, cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING)

    def _subscribe(self, options: int, topic: str, client: str = "", connection: Connection | None = None) -> int:
        """Subscribe for a client as the bridge does; return the handle of the subscription."""
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
        """Hold a non-durable subscription."""
        handle = self._subscribe(cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE, topic, client)
        try:
            yield
        finally:
            self._mq.close(handle)

    def _publish(self, topic: str, data: bytes, options: int = 0) -> None:
        """Publish as the bridge does: in syncpoint, with the user of the client in the message."""
        opening = cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_FAIL_IF_QUIESCING
        handle = self._mq.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic), opening)
        try:
            options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_SET_IDENTITY_CONTEXT
            self._mq.put(handle, _message(data, UserIdentifier=b"acceptance"), options)
            self._mq.commit()
        except MQError:
            self._mq.backout()
            raise
        finally:
            self._mq.close(handle)

    def _next(self, client: str, wait: int) -> Got | None:
        """Take the next message for a client off the transmission queue; None if there is none within `wait` ms."""
        assert self._transmissions is not None
        common = cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
        step = cmqc.MQGMO_BROWSE_FIRST
        until = time.monotonic() + wait / 1000
        while True:
            left = max(0, int((until - time.monotonic()) * 1000))
            options = GetOptions(Options=common | cmqc.MQGMO_WAIT | step, WaitInterval=left, MaxLength=_HEADER)
            got = get_or_none(self._mq, self._transmissions, options)
            if got is None:
                return None
            step = cmqc.MQGMO_BROWSE_NEXT
            if _client_of(got) == client:
                taking = GetOptions(
                    Options=cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2,
                    MsgId=got.md.MsgId,
                )
                return self._mq.get(self._transmissions, taking)

    def _expect(self, data: bytes, client: str = "") -> Got:
        client = client or self._client
        got = self._next(client, WAIT)
        if got is None:
            raise Failed(
                f"no message for client {client} on {self._requirements.transmission_queue}",
                "check DEFXMITQ, and whether another program takes messages from the queue",
            )
        if not got.data.endswith(data):
            raise Failed(f"a message of {len(got.data)} bytes that does not end with the payload published")
        return got

    def _round_trip(self) -> str:
        with self._subscribed(self._topic):
            self._publish(self._topic, b"round trip")
            got = self._expect(b"round trip")
        queued = read_transmission(got)
        user = decode_mqxqh(got.data).MsgDesc.UserIdentifier.rstrip(b" \0")
        if (queued.topic, queued.user_data, user) != (self._topic, "1", b"acceptance"):
            raise Failed(
                f"the message has topic {queued.topic!r}, subscription user data {queued.user_data!r} and user {user!r}",
                "report this to the developers of the bridge, with the version of the queue manager",
            )
        self._delivers = True
        return "topic, subscription user data and user arrive in MQXQH and RFH2"

    def _retained(self) -> str:
        topic = f"{self._topic}/retained"
        self._publish(topic, b"retained", cmqc.MQPMO_RETAIN)
        with closing(Administration(self._mq)) as administration:
            try:
                with self._subscribed(topic):
                    self._expect(b"retained")
                administration.clear_retained(topic)
                with self._subscribed(topic):
                    left = self._next(self._client, 1000)
            finally:
                with contextlib.suppress(MQError):
                    administration.clear_retained(topic)
        if left is not None:
            raise Failed("CLEAR TOPICSTR CLRTYPE(RETAINED) leaves the retained publication")
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
        if left := self._own_subscriptions():
            raise Failed(f"subscriptions are left after MQCO_REMOVE_SUB: {', '.join(left)}")
        return "messages wait without a connection; another connection resumes and removes the subscription"

    def _client_identifiers(self) -> str:
        if not self._delivers:
            raise Skipped("messages to clients do not arrive")
        failed = []
        for character in PUNCTUATION:
            client = f"{self._client}{character}X"
            topic = f"{self._topic}/identifier"
            try:
                with self._subscribed(topic, client):
                    self._publish(topic, b"identifier")
                    self._expect(b"identifier", client)
            except MQError as error:
                failed.append(f"{character!r}: {cmqc.reason_name(error.reason)} ({error.reason})")
            except Failed:
                failed.append(f"{character!r}: no message")
        if failed:
            raise Failed(
                f"clients whose identifier contains these characters get no messages: {', '.join(failed)}",
                "give such clients other identifiers: letters, digits and . _ / % are always accepted",
            )
        return f"accepted: letters, digits, . _ / % and {' '.join(PUNCTUATION.strip())} and blank"

    def _long_message(self) -> str:
        # What is too long for the transmission queue would go to the dead-letter queue.
        objects = MQOD(ObjectType=cmqc.MQOT_Q_MGR), MQOD(ObjectName=self._requirements.transmission_queue)
        length = min(self._inquire(od, cmqc.MQIA_MAX_MSG_LENGTH)[0][0] for od in objects) - HEADERS
        begun = time.monotonic()
        with self._subscribed(f"{self._topic}/long"):
            try:
                self._publish(f"{self._topic}/long", b"x" * length)
                self._expect(b"x" * length)
            except MQError as error:
                raise Failed(
                    f"a message of {length} bytes, as MAXMSGL of queue manager and queue allow: {error}",
                    f"set MAXMSGL({MAX_MESSAGE_LENGTH}) for the channel",
                ) from error
        return f"{length} bytes there and back in {time.monotonic() - begun:.1f} s"

    # Handles and rate ------------------------------------------------------------------------------------------------

    def _stale_handle(self) -> str:
        """Alter a queue with FORCE while it is open, and open it again (IBM MQ documentation, reason code 2041)."""
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
            raise Failed(f"a handle of an altered queue gives {cmqc.reason_name(stale)} ({stale})")
        return "MQRC_OBJECT_CHANGED (2041), and a new handle works" if stale else "the handle stays valid"

    def _rate(self) -> str:
        number = 20
        begun = time.monotonic()
        for _ in range(number):
            od = MQOD(ObjectType=cmqc.MQOT_Q_MGR)
            self._mq.close(self._mq.open(od, cmqc.MQOO_INQUIRE))
        trip = (time.monotonic() - begun) / number / 2
        with self._own_queue() as (name, _):
            handle = self._mq.open(MQOD(ObjectName=name), cmqc.MQOO_OUTPUT)
            begun = time.monotonic()
            for count in range(1, RATE_MESSAGES + 1):
                self._mq.put(handle, _message(b"x" * 200), cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_ASYNC_RESPONSE)
                if count % RATE_UNIT == 0:
                    self._mq.commit()
            seconds = time.monotonic() - begun
            self._mq.close(handle)
        rate = f"{RATE_MESSAGES / seconds:,.0f} non-persistent messages/s over one connection"
        return f"{rate}, with a round trip of {trip * 1000:.2f} ms"

    # Clean-up --------------------------------------------------------------------------------------------------------

    def _own_subscriptions(self) -> list[str]:
        with closing(Administration(self._mq)) as administration:
            return [name for name, *_ in administration.subscriptions(f"{self._client}*")]

    def _clean_up(self) -> str:
        """Remove what is left of the tests, and disconnect."""
        try:
            left = self._own_subscriptions()
            for name in left:
                client, _, topic = name.partition(":")
                handle = self._subscribe(cmqc.MQSO_ALTER | cmqc.MQSO_DURABLE, topic, client)
                self._mq.close(handle, cmqc.MQCO_REMOVE_SUB)
            taken = 0
            if self._transmissions is not None:
                for client in (self._client, *(f"{self._client}{character}X" for character in PUNCTUATION)):
                    while self._next(client, 0) is not None:
                        taken += 1
            if self._own_subscriptions():
                raise Failed("subscriptions are left", f"DISPLAY SUB('{PREFIX}*') lists them, DELETE SUB removes them")
        finally:
            if self._connection is not None:
                with contextlib.suppress(MQError):
                    self._connection.disconnect()
                self._connection = None
        return f"nothing is left ({len(left)} subscriptions and {taken} messages of failed tests removed)"


def _message(data: bytes, **md: bytes) -> Message:
    described = MQMD(Persistence=cmqc.MQPER_NOT_PERSISTENT, Expiry=MESSAGE_EXPIRY)
    return Message(msgspec.structs.replace(described, **md), data)


def _client_of(got: Got) -> str:
    try:
        return decode_mqxqh(got.data).RemoteQMgrName.decode("utf-8", "replace").rstrip(" \0")
    except MalformedHeader:
        return ""
