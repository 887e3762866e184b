"""A message laid open in a page: its MQMD, the headers in front of its body, and the body."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mapping.message_view import MessageView, body_text, fields
from bridge.wire.mq import MQMD

#: Bytes of a body that are shown.
BODY: Final = 65_536


class MessagePage(msgspec.Struct, frozen=True):
    """What a page shows of a message."""

    #: MQMD and headers: name, and fields with their values
    parts: list[tuple[str, list[tuple[str, str]]]]
    #: bytes of the whole message data, and of the body
    size: int
    body_size: int
    #: None: what is in messages is not shown
    body: str | None
    is_cut: bool


def message_page(md: MQMD, data: bytes, size: int, payloads: bool) -> MessagePage:
    """Return what a page shows; `size` is that of the message data, of which `data` may be the beginning."""
    view = MessageView(md, data)
    shown = body_text(view.body[:BODY]) if payloads else None
    body_size = len(view.body) + size - len(data)
    return MessagePage([(name, list(fields(part))) for name, part in view.parts()], size, body_size, shown, body_size > BODY)
