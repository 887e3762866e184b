"""IBM MQ messages as the bridge holds them: structured, with their bytes made only at a border.

A message leaves the process for IBM MQ, another process or the disk; only then are its headers written. Two kinds exist:
`Message`, whose data came as bytes from an MQ application, and `PublicationMessage`, made from an MQTT publication
(`bridge.mapping.telemetry.message`).
"""

from __future__ import annotations

import msgspec

from bridge.wire.mq import MQMD

#: CCSID of everything the bridge writes as characters: UTF-8.
CCSID_UTF8 = 1208


class Message(msgspec.Struct, tag="m", array_like=True, gc=False):
    """A message as an MQ application put it.

    `md` is its MQMD; `data` are the bytes that follow the MQMD: headers named by `md.Format`, then the body.
    """

    md: MQMD
    data: bytes
    #: the RFH2 at the front was made of message properties by the queue manager; an application wrote no header there
    made_rfh2: bool = False

    @property
    def put_data(self) -> bytes:
        """Return the data that are handed to MQPUT."""
        return self.data

    @property
    def length(self) -> int:
        """Return the length in bytes of the message data, as MAXMSGL counts it."""
        return len(self.data)
