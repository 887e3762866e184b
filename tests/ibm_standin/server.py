"""The server of the stand-in, which accepts programs in C as well as programs of the bridge's package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from bridge.mq.embedded.admission import FIRST_TIMEOUT, Admission, ConnectionSlot
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server import ApplicationProtocol, ApplicationServer, Conversation
from tests.ibm_standin.conversation import MqiConversation
from tests.ibm_standin.frames import GREETING, SOCKET_NAME
from tests.ibm_standin.message_identifiers import FORMS, chosen_form
from tests.ibm_standin.rules import Present


class StandInServer(ApplicationServer):
    """Programs in C connect to a separate socket, and to the listener.

    :ivar channels: names of server-connection channels for connections over TCP. Empty allows any name.

    :ivar present: rules of tests, and counts (`rules`).

    Generated MsgIds have a form of IBM MQ (`message_identifiers`). Copies of publications have the user of their
    subscription.
    """

    def __init__(
        self,
        queue_manager: QueueManager,
        admission: Admission | None = None,
        channels: Sequence[str] = (),
        msg_ids: str | None = None,
    ) -> None:
        super().__init__(queue_manager, admission)
        queue_manager.appearance = FORMS[msg_ids or chosen_form()](queue_manager.name)
        queue_manager.objects.topics.copy_as_subscriber()
        self.channels = channels
        self.present = Present(queue_manager.data_directory)

    async def listen(self, address: tuple[str, int] | None = None) -> list[str]:
        place = await self.listen_at(SOCKET_NAME, lambda: MqiConversation(self, self.present))
        return [f"MQ applications in C connect at {place}", *await super().listen(address)]

    def conversation(self, slot: ConnectionSlot) -> asyncio.Protocol:
        return _FirstByte(self._spoken, slot)

    def _spoken(self, first: int, slot: ConnectionSlot) -> Conversation:
        """Return the conversation for a connection with this first byte."""
        # The big-endian length of a MessagePack frame never begins with the first byte of the greeting.
        if first == GREETING[0]:
            return MqiConversation(self, self.present, slot, self.channels)
        return ApplicationProtocol(self, slot)


class _FirstByte(asyncio.Protocol):
    """Determines the protocol of a connection from its first byte."""

    def __init__(self, conversation: Callable[[int, ConnectionSlot], Conversation], slot: ConnectionSlot) -> None:
        self._conversation = conversation
        self._slot = slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        self._timer = asyncio.get_running_loop().call_later(FIRST_TIMEOUT, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._slot.give_back()

    def data_received(self, data: bytes) -> None:
        self._timer.cancel()
        conversation = self._conversation(data[0], self._slot)
        self._transport.set_protocol(conversation)
        conversation.connection_made(self._transport)
        conversation.data_received(data)
