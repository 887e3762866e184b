"""A publication as a link has received it from a broker: with what the broker is owed for it."""

from __future__ import annotations

import msgspec

from bridge.mapping.publication import Publication


class Received(msgspec.Struct, gc=False):
    """A publication that came from the broker.

    `qos` is what is owed for it: 1 PUBACK, 2 PUBREC, 0 nothing. It differs from the publication's own, and `mid` is 0,
    where the broker lost the session in which it was sent: then the broker expects no answer and sends it no more.
    """

    publication: Publication
    qos: int
    mid: int
    #: DUP: the broker may have sent it before
    dup: bool
    #: number of the connection that it came on
    generation: int
