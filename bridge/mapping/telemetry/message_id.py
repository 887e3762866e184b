"""The MQTT message id of a message on its way to a client (integration table 5)."""

from __future__ import annotations

from collections.abc import Container


def message_id_from(msg_id_low: int, in_use: Container[int]) -> int:
    """Return the MQTT message id of a transmission.

    The id is the last two bytes of the MQMD.MsgId that the transmission has on the transmission queue. Where they are 0,
    which MQTT reserves, or still in flight for that client, it is the next free id. Raises ValueError when all 65535 are
    in use, which an in-flight window prevents.
    """
    candidate = msg_id_low & 0xFFFF
    for _ in range(65_536):
        if candidate and candidate not in in_use:
            return candidate
        candidate = (candidate + 1) & 0xFFFF
    raise ValueError("all 65535 message ids of the client are in flight")
