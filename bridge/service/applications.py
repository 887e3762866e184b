"""Applications over HTTP. Each is an MQTT 5 client of the bridge whose connection is in memory.

So the same code checks, limits, counts, traces and archives its publications and those of other clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from bridge.administration.application import ApplicationCall, ApplicationFailed, ApplicationFailure, ApplicationMessage
from bridge.config.channel import ChannelConfig
from bridge.config.operations import ApplicationConfig
from bridge.mqtt.packets import (
    LEVEL_MQTT_5,
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import MalformedPacket, ReasonCode
from bridge.mqtt.topics import is_wildcard, matches, topic_string_error
from bridge.mqtt.writer import encode
from bridge.transport.layers import Stack
from bridge.transport.stream import MakesOwner, Rate, StreamConnection

#: The name of the channel of applications in the log, the audit log and metrics, and for channel authentication records.
APPLICATIONS: Final = "HTTP.APPLICATIONS"
#: Prefix of the Response Topic of an application, followed by the application's name.
REPLIES: Final = "replies/"
#: Bytes of a PUBLISH in addition to its payload. The head of an HTTP request is shorter.
_PROPERTIES_SIZE: Final = 131_072
#: Maximum time until the queue manager accepts a connection, subscription or publication, in seconds.
_TIMEOUT: Final = 30.0
#: The outcome of a request whose program disconnected before the answer.
_DISCONNECTED: Final = "disconnected"

_NAMES: Final = {int(code): code.name.lower().replace("_", " ") for code in ReasonCode}
_FAILURES: Final[Mapping[int, ApplicationFailure]] = {
    ReasonCode.NOT_AUTHORIZED: ApplicationFailure.NOT_AUTHORIZED,
    ReasonCode.TOPIC_NAME_INVALID: ApplicationFailure.INVALID,
    ReasonCode.TOPIC_FILTER_INVALID: ApplicationFailure.INVALID,
    ReasonCode.PAYLOAD_FORMAT_INVALID: ApplicationFailure.INVALID,
    ReasonCode.PACKET_TOO_LARGE: ApplicationFailure.INVALID,
}


def _failed(operation: str, code: int, reason: str | None = None) -> ApplicationFailed:
    """Return the exception for an MQTT 5 reason code."""
    failure = _FAILURES.get(code, ApplicationFailure.UNAVAILABLE)
    return ApplicationFailed(failure, f"{operation}: {reason or _NAMES.get(code, code)}")


def _silence() -> ApplicationFailed:
    """Return the exception for a queue manager that does not answer."""
    return ApplicationFailed(ApplicationFailure.UNAVAILABLE, "the queue manager does not answer")


# The connection in memory --------------------------------------------------------------------------------------------


class MemoryTransport(asyncio.Transport):
    """The bridge's end of a connection in memory. Both directions are delivered in a later turn of the event loop."""

    def __init__(self, name: str, on_received: Callable[[bytes], None], on_lost: Callable[[], None]) -> None:
        """`on_received` is called with MQTT packets from the bridge, and `on_lost` at the end of the connection."""
        super().__init__({"peername": f"application {name}"})
        self._loop = asyncio.get_running_loop()
        self._received = on_received
        self._lost = on_lost
        self._protocol: StreamConnection | None = None
        #: MQTT packets of the application that the bridge has not read yet
        self._pending: deque[bytes] = deque()
        self._paused = False
        self._closing = False

    def begin(self, protocol: StreamConnection) -> None:
        """Attach the protocol, and start the connection."""
        self._protocol = protocol
        protocol.connection_made(self)

    @property
    def pending(self) -> int:
        """The number of packets of the application that the bridge has not read yet."""
        return len(self._pending)

    def send(self, packets: bytes) -> None:
        """Send encoded packets to the bridge, which reads them when it is ready."""
        self._pending.append(packets)
        if not self._paused:
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._pending and not self._paused and not self._closing and self._protocol is not None:
            self._protocol.data_received(self._pending.popleft())

    def _end(self) -> None:
        if (protocol := self._protocol) is not None:
            self._protocol = None
            protocol.connection_lost(None)
            self._lost()

    # asyncio.Transport, as far as StreamConnection uses it

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def write(self, data: Any) -> None:
        self._loop.call_soon(self._received, bytes(data))

    def write_eof(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._end)

    abort = close


class _Listener:
    """`bridge.transport.stream.Listener` of one application."""

    def __init__(self, config: ChannelConfig, make_owner: MakesOwner, pending_bytes: int) -> None:
        self.config = config
        self.make_owner = make_owner
        self.loop = asyncio.get_running_loop()
        self.pending_bytes = pending_bytes
        self.handshakes_failed = 0
        self.handshake_failure = ""

    def admit(self, connection: StreamConnection) -> str:
        return ""

    def stack(self, connection: StreamConnection) -> Stack | None:
        return None

    def discard(self, connection: StreamConnection) -> None:
        pass


class _ApplicationChannel(ChannelConfig):
    """The rules of an application, in the form of a channel."""

    # The token authenticates the application, so no other client can take over its session.
    AUTHENTICATED = True


def _channel_of(config: ApplicationConfig, replies: str) -> ChannelConfig:
    """Return the rules of an application."""
    return _ApplicationChannel(
        name=APPLICATIONS,
        protocols=["MQTTV5"],
        mcauser=config.mq_user,
        publish_topics=config.publish_topics,
        subscribe_topics=[replies, *config.reply_topics],
        max_packet_size=config.max_payload + _PROPERTIES_SIZE,
    )


# Applications --------------------------------------------------------------------------------------------------------


class _Session:
    """One connection of an application, from CONNECT to its end."""

    def __init__(
        self,
        name: str,
        config: ApplicationConfig,
        make_owner: MakesOwner,
        pending_bytes: int,
        reply_topics: set[str],
    ) -> None:
        """`reply_topics` contains the `reply_topic` of each call in progress of all applications."""
        #: A valid name of an MQ object, so that MQ applications find the topic in ReplyToQ.
        self._replies = f"{REPLIES}{name.replace('-', '_')}/{secrets.token_hex(6)}"
        listener = _Listener(_channel_of(config, self._replies), make_owner, pending_bytes)
        self._loop = listener.loop
        self._decoder = Decoder(server=False, protocol_level=LEVEL_MQTT_5)
        #: the last packet identifier
        self._number = 0
        self._connack: asyncio.Future[Connack] = self._loop.create_future()
        #: The remaining number of publications in progress. A publication counts until its acknowledgement, even if its
        #: request has timed out, because its message takes memory until then.
        self._room = asyncio.Semaphore(config.requests)
        self._most_publications = config.requests
        #: expected acknowledgements, by packet identifier
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        #: waiting calls by Correlation Data, and Correlation Data by the `reply_topic` of the call
        self._calls: dict[bytes, asyncio.Future[Publish]] = {}
        self._topics: dict[str, bytes] = {}
        self._reply_topics = reply_topics
        self._subscribing: asyncio.Task[None] | None = None
        self.closed = False
        self._transport = MemoryTransport(name, self._receive, self._lost)
        self._connection = StreamConnection(listener)
        self._transport.begin(self._connection)
        self._send(Connect("", "MQTT", LEVEL_MQTT_5, user_name=config.mq_user))

    async def connected(self) -> None:
        """Wait for CONNACK. Raises ApplicationFailed."""
        connack = await asyncio.shield(self._connack)
        if connack.return_code:
            raise _failed("the application was rejected, and the log contains the reason", connack.return_code)

    async def publish(self, message: ApplicationMessage, properties: PublishProperties | None) -> bool:
        """Publish a message, and return False if it is known to have no subscriber. Raises ApplicationFailed."""
        if not message.qos:
            if self._transport.pending >= self._most_publications:
                raise _silence()
            self._send(Publish(message.topic, message.payload, 0, message.retain, properties=properties))
            return True
        packet = await self._request(
            lambda number: Publish(
                message.topic, message.payload, message.qos, message.retain, False, number, properties
            ),
            self._room,
        )
        if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
            reason = packet.properties and packet.properties.reason_string
            raise _failed(f"publication to {message.topic[:200]!r} rejected", packet.reason_code, reason)
        return bool(packet.reason_code != ReasonCode.NO_MATCHING_SUBSCRIBERS)

    async def call(self, call: ApplicationCall, seconds: float) -> Publish:
        """Publish a request and return its reply. Raises ApplicationFailed."""
        correlation = secrets.token_hex(12).encode()  # fits CorrelId
        reply: asyncio.Future[Publish] = self._loop.create_future()
        topic = call.reply_topic
        # Also a call of another application: each call would receive the reply to the other's request.
        if topic in self._reply_topics:
            raise ApplicationFailed(ApplicationFailure.BUSY, f"another call waits for a reply to {topic!r}")
        if topic:
            self._reply_topics.add(topic)
        self._calls[correlation] = reply
        published = False
        try:
            async with asyncio.timeout(seconds):
                await (self._subscribe(topic) if topic else self._subscribe_to_replies())
                if topic:
                    # Not earlier: a message that precedes the request is not its reply.
                    self._topics[topic] = correlation
                if not await self.publish(call, call.properties(topic or self._replies, correlation)):
                    raise ApplicationFailed(ApplicationFailure.NO_SUBSCRIBER, f"{call.topic[:200]!r} has no subscriber")
                published = True
                return await reply
        except TimeoutError:
            if not published:
                raise _silence() from None
            why = f"no reply from a subscriber of {call.topic[:200]!r} within {seconds:g} s"
            raise ApplicationFailed(ApplicationFailure.TIMEOUT, why) from None
        finally:
            del self._calls[correlation]
            if topic:
                self._topics.pop(topic, None)
                self._reply_topics.discard(topic)
                if not self.closed:
                    self._send(Unsubscribe(self._next_number(), (topic,)))

    def close(self, why: str) -> None:
        """Disconnect. Requests in progress fail."""
        self._connection.close(why, ReasonCode.ADMINISTRATIVE_ACTION)

    async def _subscribe_to_replies(self) -> None:
        if self._subscribing is None or (self._subscribing.done() and self._subscribing.exception() is not None):
            self._subscribing = self._loop.create_task(self._subscribe(self._replies))
            # Retrieve the exception, because the waiting calls may have ended.
            self._subscribing.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._subscribing)

    async def _subscribe(self, topic: str) -> None:
        # A retained message is not the reply.
        options = (SubscriptionOptions(retain_handling=2),)
        suback = await self._request(lambda number: Subscribe(number, ((topic, 0),), options=options))
        if (code := suback.return_codes[0]) >= ReasonCode.UNSPECIFIED_ERROR:
            reason = suback.properties and suback.properties.reason_string
            raise _failed(f"subscription to {topic[:200]!r} rejected", code, reason)

    async def _request(self, packet: Callable[[int], Packet], room: asyncio.Semaphore | None = None) -> Any:
        """Send a packet with a new packet identifier, and return its acknowledgement. Raises ApplicationFailed.

        Its acknowledgement releases `room`.
        """
        try:
            async with asyncio.timeout(_TIMEOUT):
                if room is not None:
                    await room.acquire()
                return await self._send_request(packet, room)
        except TimeoutError:
            raise _silence() from None

    def _send_request(self, packet: Callable[[int], Packet], room: asyncio.Semaphore | None) -> asyncio.Future[Any]:
        """Send a packet with a new packet identifier, and return the future of its acknowledgement."""
        if self.closed:
            raise self._unavailable()
        number = self._next_number()
        answer: asyncio.Future[Any] = self._loop.create_future()
        try:
            self._send(packet(number))
        except ApplicationFailed:
            if room is not None:
                room.release()
            raise
        self._awaited[number] = answer
        return answer

    def _next_number(self) -> int:
        while True:
            self._number = self._number % 65_535 + 1
            if self._number not in self._awaited:
                return self._number

    def _unavailable(self) -> ApplicationFailed:
        why = self._connection.end_text or "the bridge stops"
        return ApplicationFailed(ApplicationFailure.UNAVAILABLE, f"the connection of the application was closed: {why}")

    def _send(self, packet: Packet) -> None:
        """Send a packet. Raises ApplicationFailed if a value is too long."""
        try:
            encoded = encode(packet, protocol_level=LEVEL_MQTT_5)
        except MalformedPacket as error:
            raise ApplicationFailed(ApplicationFailure.INVALID, str(error)) from error
        self._transport.send(encoded)

    def _receive(self, encoded: bytes) -> None:
        for packet in self._decoder.feed(encoded):
            if isinstance(packet, Publish):
                self._take(packet)
            elif isinstance(packet, Pubrec):
                self._resolve(self._awaited.get(packet.packet_id), packet)
                if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
                    self._awaited.pop(packet.packet_id, None)
                    self._room.release()
                else:
                    self._send(Pubrel(packet.packet_id))
            elif isinstance(packet, Puback | Suback | Pubcomp):
                self._resolve(self._awaited.pop(packet.packet_id, None), packet)
                if not isinstance(packet, Suback):
                    self._room.release()
            elif isinstance(packet, Connack):
                if packet.properties is not None and packet.properties.receive_maximum is not None:
                    self._room = asyncio.Semaphore(min(self._most_publications, packet.properties.receive_maximum))
                self._resolve(self._connack, packet)

    def _take(self, publication: Publish) -> None:
        """Pass a reply to the call that waits for it. Late replies are discarded."""
        properties = publication.properties
        correlation = None if properties is None else properties.correlation_data
        call = self._calls.get(correlation or self._topics.get(publication.topic, b""))
        self._resolve(call, publication)

    @staticmethod
    def _resolve(future: asyncio.Future[Any] | None, packet: object) -> None:
        if future is not None and not future.done():
            future.set_result(packet)

    def _lost(self) -> None:
        self.closed = True
        for _ in range(self._most_publications):
            self._room.release()  # and the requests that wait for it fail
        for future in (self._connack, *self._awaited.values(), *self._calls.values()):
            if not future.done():
                future.set_exception(self._unavailable())
                # asyncio logs an exception that is never retrieved, and the request may have ended.
                future.exception()


class Application:
    """An application of the configuration, and its connection if it is connected."""

    def __init__(self, name: str, config: ApplicationConfig, connect: Callable[[], _Session]) -> None:
        self.name = name
        self.config = config
        #: number of requests by their outcome: `ok`, _DISCONNECTED, or an ApplicationFailure
        self.counts: dict[str, int] = dict.fromkeys(("ok", *ApplicationFailure, _DISCONNECTED), 0)
        #: number of requests in progress
        self.in_progress = 0
        self._connect = connect
        self._session: _Session | None = None
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        self._rate = None if config.publish_rate is None else Rate(config.publish_rate, self._clock())

    @contextlib.contextmanager
    def request(self, note: Callable[[str, str], None]) -> Iterator[None]:
        """Count a request. If it exceeds a limit, call `note` with the limit and the name, and raise ApplicationFailed."""
        outcome = _DISCONNECTED  # disconnecting cancels the request
        self.in_progress += 1
        try:
            self._check_limits(note)
            yield
            outcome = "ok"
        except ApplicationFailed as error:
            outcome = error.failure
            raise
        finally:
            self.in_progress -= 1
            self.counts[outcome] += 1

    def _check_limits(self, note: Callable[[str, str], None]) -> None:
        if self.in_progress > self.config.requests:
            note("application_requests", self.name)
            why = f"{self.config.requests} requests of application {self.name} are in progress (requests)"
            raise ApplicationFailed(ApplicationFailure.LIMIT, why)
        if self._rate is not None and (pause := self._rate.spend(1.0, self._clock())):
            self._rate.spend(-1.0, self._clock())
            note("application_rate", self.name)
            why = f"application {self.name} sends more than {self.config.publish_rate:g} requests per second (publish_rate)"
            raise ApplicationFailed(ApplicationFailure.LIMIT, why, pause)

    async def publish(self, message: ApplicationMessage) -> bool:
        """Publish a message, and return False if it is known to have no subscriber. Raises ApplicationFailed."""
        _check_topic(message.topic)
        session = await self._connected()
        return await session.publish(message, message.properties())

    async def call(self, call: ApplicationCall) -> Publish:
        """Publish a request and return its reply. Raises ApplicationFailed."""
        _check_topic(call.topic)
        topic, most = call.reply_topic, self.config.call_timeout
        if topic:
            _check_topic(topic)
        if topic and not any(matches(pattern, topic) for pattern in self.config.reply_topics):
            why = f"reply_topic {topic[:200]!r} is not among the reply_topics of application {self.name}"
            raise ApplicationFailed(ApplicationFailure.NOT_AUTHORIZED, why)
        seconds = most if call.seconds is None else min(call.seconds, most)
        if call.expiry is None:
            # The device must not act after the application has given up.
            call = msgspec.structs.replace(call, expiry=math.ceil(seconds))
        session = await self._connected()
        return await session.call(call, seconds)

    def close(self, why: str) -> None:
        """Disconnect. Requests in progress fail."""
        if self._session is not None and not self._session.closed:
            self._session.close(why)

    async def _connected(self) -> _Session:
        """Return the connected session. Requests that begin meanwhile wait for the same CONNACK."""
        if self._session is None or self._session.closed:
            self._session = self._connect()
        session = self._session
        try:
            async with asyncio.timeout(_TIMEOUT):
                await session.connected()
        except TimeoutError:
            raise _silence() from None
        return session


def _check_topic(topic: str) -> None:
    """Raise ApplicationFailed unless a topic can be published to."""
    why = topic_string_error(topic) if topic else "it is blank"
    if why is None and is_wildcard(topic):
        why = "wildcards are for subscriptions"
    if why is not None:
        raise ApplicationFailed(ApplicationFailure.INVALID, f"topic {topic[:200]!r} is not valid: {why}")


class Applications:
    """All applications of the configuration. Used on the event loop of the bridge."""

    def __init__(
        self,
        make_owner: MakesOwner,
        configs: Mapping[str, ApplicationConfig],
        pending_bytes: int,
        on_limit: Callable[[str, str], None],
    ) -> None:
        self._make_owner = make_owner
        self._pending_bytes = pending_bytes
        self._on_limit = on_limit
        self._applications: dict[str, Application] = {}
        #: the `reply_topic` of each call in progress
        self._reply_topics: set[str] = set()
        self._stopped = False
        self.use(configs)

    def __iter__(self) -> Iterator[Application]:
        return iter(self._applications.values())

    def use(self, configs: Mapping[str, ApplicationConfig]) -> None:
        """Apply a configuration. Requests in progress of removed and changed applications fail."""
        for name, application in list(self._applications.items()):
            if configs.get(name) != application.config:
                del self._applications[name]
                application.close("its configuration has changed")
        for name, config in configs.items():
            if name not in self._applications:
                connect = partial(_Session, name, config, self._make_owner, self._pending_bytes, self._reply_topics)
                self._applications[name] = Application(name, config, connect)

    def stop_input(self) -> None:
        """Stop accepting requests."""
        self._stopped = True

    async def end(self) -> None:
        """Disconnect all applications. Requests in progress fail."""
        self.stop_input()
        for application in self:
            application.close("the bridge stops")
        # The event loop reports the closed connections.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def publish(self, name: str, message: ApplicationMessage) -> bool:
        """Publish a message, and return False if it is known to have no subscriber. Raises ApplicationFailed."""
        application = self._application(name)
        with application.request(self._on_limit):
            return await application.publish(message)

    async def call(self, name: str, call: ApplicationCall) -> Publish:
        """Publish a request and return its reply. Raises ApplicationFailed."""
        application = self._application(name)
        with application.request(self._on_limit):
            return await application.call(call)

    def _application(self, name: str) -> Application:
        if self._stopped:
            raise ApplicationFailed(ApplicationFailure.UNAVAILABLE, "the bridge stops")
        if (application := self._applications.get(name)) is None:
            why = f"the configuration has no application {name} (admin.applications)"
            raise ApplicationFailed(ApplicationFailure.NOT_AUTHORIZED, why)
        return application
