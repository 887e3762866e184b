"""The headers in front of a message, walked by their Format fields to the data behind them.

Each structure says by Format what follows it, by Encoding in which byte order and by CodedCharSetId in which character
set; the MQMD says so of the first one. MQXQH says it through the MQMD inside it. Headers may come in any order: a
dead-lettered transmission-queue message is MQDLH, MQXQH, MQRFH2, data. Source: IBM MQ, "MQ headers" and the field
topics Format, Encoding and CodedCharSetId of MQMD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq.errors import MalformedHeader
from bridge.wire.mq.mqdlh import MQDLH, MQDLH_LAYOUT, decode_mqdlh, encode_mqdlh
from bridge.wire.mq.mqmd import MQMD_LAYOUTS, MQMDE, MQMDE_LAYOUT, decode_mqmde, encode_mqmde
from bridge.wire.mq.mqxqh import MQXQH, MQXQH_LAYOUT, decode_mqxqh, encode_mqxqh
from bridge.wire.mq.other_headers import OTHER_KINDS, decode_other_header
from bridge.wire.mq.rfh2 import RFH2, RFH2_LAYOUT, decode_rfh2, encode_rfh2
from bridge.wire.mq.structure import Buffer, Layout, byte_order_of

Header: TypeAlias = RFH2 | MQXQH | MQDLH | MQMDE


class Kind(NamedTuple):
    """How headers of a kind are read and written."""

    structure: str
    format: bytes
    decode: Callable[..., Any]
    encode: Callable[..., bytes]
    length: int | None  # None: the header says
    #: layouts of its fixed part, with their offsets
    layouts: tuple[tuple[Layout, int], ...]


_XQH_LAYOUTS: Final = ((MQXQH_LAYOUT, 0), (MQMD_LAYOUTS[cmqc.MQMD_VERSION_1], MQXQH_LAYOUT.length))

_KINDS: Final[dict[type, Kind]] = {
    RFH2: Kind("MQRFH2", cmqc.MQFMT_RF_HEADER_2, decode_rfh2, encode_rfh2, None, ((RFH2_LAYOUT, 0),)),
    MQXQH: Kind("MQXQH", cmqc.MQFMT_XMIT_Q_HEADER, decode_mqxqh, encode_mqxqh, cmqc.MQXQH_LENGTH_1, _XQH_LAYOUTS),
    MQDLH: Kind(
        "MQDLH", cmqc.MQFMT_DEAD_LETTER_HEADER, decode_mqdlh, encode_mqdlh, MQDLH_LAYOUT.length, ((MQDLH_LAYOUT, 0),)
    ),
    MQMDE: Kind("MQMDE", cmqc.MQFMT_MD_EXTENSION, decode_mqmde, encode_mqmde, MQMDE_LAYOUT.length, ((MQMDE_LAYOUT, 0),)),
}
KIND_OF_FORMAT: Final = {kind.format: kind for kind in _KINDS.values()}


class Chain(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The headers of a message and its body; Format, Encoding and CodedCharSetId describe the body.

    CodedCharSetId is the body's own: where a header says MQCCSI_INHERIT, it is what was said before that header.
    ``outer_encoding`` and ``outer_ccsid`` are those of the MQMD, which describe the first header (when there is none,
    the body's are used instead).
    """

    headers: tuple[Header, ...] = ()
    Format: bytes = cmqc.MQFMT_NONE
    Encoding: int = cmqc.MQENC_NATIVE
    CodedCharSetId: int = cmqc.MQCCSI_Q_MGR
    body: bytes = b""
    outer_encoding: int = cmqc.MQENC_NATIVE
    outer_ccsid: int = cmqc.MQCCSI_Q_MGR


class EncodedChain(NamedTuple):
    """The data of a message, and the three MQMD fields that describe it."""

    Format: bytes
    Encoding: int
    CodedCharSetId: int
    data: bytes


def decode_chain(
    format: bytes, encoding: int, ccsid: int, data: Buffer, *, strict: bool = True, discard_others: bool = False
) -> Chain:
    """Walk the headers at the start of ``data``, which Format, Encoding and CodedCharSetId of the MQMD describe.

    The first Format that is not one of MQHRF2, MQXMIT, MQDEAD and MQHMDE names the body.

    :param strict: False: a header that cannot be read is no error; it and everything behind it is the body.
    :param discard_others: follow the chain through the headers of :data:`OTHER_KINDS`, too. They are not in the result,
        and its headers cannot be encoded to the same data.
    :raises MalformedHeader: a header is not what the Format before it announced. The offset counts from the start of
        ``data``.
    """
    headers: list[Header] = []
    outer_encoding, outer_ccsid = encoding, ccsid
    offset = 0
    while True:
        kind = KIND_OF_FORMAT.get(format)
        other = OTHER_KINDS.get(format) if discard_others else None
        try:
            if kind is not None:
                byte_order = byte_order_of(encoding, kind.structure, offset)
                header: Header = kind.decode(data, offset, byte_order=byte_order)
                headers.append(header)
                offset += header.StrucLength if isinstance(header, RFH2) else kind.length or 0
                follower = descriptor_of(header)
            elif other is not None:
                byte_order = byte_order_of(encoding, other.start.name, offset)
                follower = decode_other_header(other, data, offset, byte_order=byte_order, encoding=encoding)
                offset += follower.StrucLength
            else:
                break
        except MalformedHeader:
            if strict:
                raise
            break
        format, encoding = follower.Format, follower.Encoding
        if follower.CodedCharSetId != cmqc.MQCCSI_INHERIT:
            ccsid = follower.CodedCharSetId
    return Chain(
        headers=tuple(headers),
        Format=format,
        Encoding=encoding,
        CodedCharSetId=ccsid,
        body=bytes(data[offset:]),
        outer_encoding=outer_encoding,
        outer_ccsid=outer_ccsid,
    )


def encode_chain(
    chain: Chain | Iterable[Header],
    body: bytes = b"",
    *,
    encoding: int | None = None,
    ccsid: int | None = None,
) -> EncodedChain:
    """Encode a chain to message data, with the MQMD fields that describe the data; the inverse of :func:`decode_chain`.

    The Format of each header is set to the header that follows it. The last header describes the body: by what the
    :class:`Chain` says of it, or, when bare headers are given, as it stands. The Encoding of a header is not changed
    otherwise; it decides the byte order of the next.

    :param chain: a Chain, or headers in their order.
    :param body: what follows bare headers; a Chain brings its own.
    :param encoding: of the first header, for the MQMD; None: the Chain's ``outer_encoding``, or native.
    :param ccsid: likewise; None: the Chain's ``outer_ccsid``, or MQCCSI_Q_MGR. Without headers both describe the body
        and default to the Chain's Encoding and CodedCharSetId.
    :raises MalformedHeader: a header cannot be encoded, or follows an Encoding with an undefined integer part. The
        offset counts from the start of the data.
    """
    if not isinstance(chain, Chain):
        chain = _chain_of(tuple(chain), body, cmqc.MQCCSI_Q_MGR if ccsid is None else ccsid)
    if not chain.headers:
        encoding = chain.Encoding if encoding is None else encoding
        return EncodedChain(chain.Format, encoding, chain.CodedCharSetId if ccsid is None else ccsid, chain.body)
    first_encoding = current = chain.outer_encoding if encoding is None else encoding
    first_ccsid = inherited = chain.outer_ccsid if ccsid is None else ccsid
    parts: list[bytes] = []
    offset = 0
    last = len(chain.headers) - 1
    for index, header in enumerate(chain.headers):
        kind = _KINDS[type(header)]
        follower = descriptor_of(header)
        if follower.CodedCharSetId != cmqc.MQCCSI_INHERIT:
            inherited = follower.CodedCharSetId
        if index < last:
            header = described(header, _KINDS[type(chain.headers[index + 1])].format, follower.Encoding, None)
        else:
            own = None if inherited == chain.CodedCharSetId else chain.CodedCharSetId
            header = described(header, chain.Format, chain.Encoding, own)
        try:
            parts.append(kind.encode(header, byte_order=byte_order_of(current, kind.structure)))
        except MalformedHeader as error:
            raise MalformedHeader(error.structure, offset + error.offset, error.rule) from None
        offset += len(parts[-1])
        current = descriptor_of(header).Encoding
    parts.append(chain.body)
    return EncodedChain(_KINDS[type(chain.headers[0])].format, first_encoding, first_ccsid, b"".join(parts))


def descriptor_of(header: Header) -> Any:
    """Return the structure whose Format, Encoding and CodedCharSetId describe what follows the header."""
    return header.MsgDesc if isinstance(header, MQXQH) else header


def described(header: Header, format: bytes, encoding: int, ccsid: int | None) -> Header:
    """Return the header with these values in its descriptor.

    Where nothing changes (the usual case) it is the very same object.
    """
    descriptor = descriptor_of(header)
    changes: dict[str, Any] = {}
    if descriptor.Format != format:
        changes["Format"] = format
    if descriptor.Encoding != encoding:
        changes["Encoding"] = encoding
    if ccsid is not None:
        changes["CodedCharSetId"] = ccsid
    if not changes:
        return header
    changed = msgspec.structs.replace(descriptor, **changes)
    return msgspec.structs.replace(header, MsgDesc=changed) if isinstance(header, MQXQH) else changed


def _chain_of(headers: tuple[Header, ...], body: bytes, ccsid: int) -> Chain:
    if not headers:
        return Chain(CodedCharSetId=ccsid, body=body)
    last = descriptor_of(headers[-1])
    for header in headers:
        if descriptor_of(header).CodedCharSetId != cmqc.MQCCSI_INHERIT:
            ccsid = descriptor_of(header).CodedCharSetId
    return Chain(headers=headers, Format=last.Format, Encoding=last.Encoding, CodedCharSetId=ccsid, body=body)
