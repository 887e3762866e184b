"""A dead letter as a line of JSON: what `mqbridge mq get --json` prints, with its facts and its bytes."""

from __future__ import annotations

import base64

import msgspec

from bridge.mapping.message_view import MessageView
from bridge.mq.letter import Letter
from bridge.wire.mq import MQMD


def exported(letter: Letter, md: MQMD, data: bytes) -> bytes:
    """Return a letter as a line of JSON: `letter` has its facts, `data` the bytes of the message in base64."""
    view = {"letter": letter, **MessageView(md, data).json(), "data": base64.b64encode(data).decode()}
    return msgspec.json.encode(view) + b"\n"
