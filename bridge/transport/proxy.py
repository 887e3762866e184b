"""The PROXY protocol, versions 1 and 2: the header in which a proxy names the client of a connection.

Source: HAProxy, "The PROXY protocol", sections 2.1 (version 1), 2.2 (version 2) and 2.2.5 (TLS).
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

import msgspec

from bridge.transport.layer import LayerError

_SIGNATURE_1 = b"PROXY "
_SIGNATURE_2 = b"\r\n\r\n\x00\r\nQUIT\n"
#: The maximum length of a version 1 header, with its CRLF, in bytes.
_LONGEST_1 = 107
#: The maximum number of bytes after the fixed part of a version 2 header: addresses (36 or 216 bytes) and optional values.
_LONGEST_2 = 4096

_FIXED_2 = struct.Struct("!12sBBH")
_ADDRESSES_4 = struct.Struct("!4s4sHH")
_ADDRESSES_6 = struct.Struct("!16s16sHH")
_LOCAL, _PROXY = 0, 1
_UNIX_ADDRESSES = 216
_TLS = struct.Struct("!BI")
_PP2_TYPE_SSL, _PP2_SUBTYPE_SSL_CN = 0x20, 0x22
_PP2_CLIENT_SSL, _PP2_CLIENT_CERT_CONN, _PP2_CLIENT_CERT_SESS = 1, 2, 4


class ProxyHeaderError(ValueError):
    """The data is not a valid PROXY protocol header. The message is for the log."""


class ProxyHeader(msgspec.Struct, frozen=True):
    """The client of a proxied connection."""

    #: IP address and port of the client, or None if the proxy speaks for itself (LOCAL) or does not know the client (UNKNOWN)
    address: str | None = None
    port: int = 0
    #: the client uses TLS to the proxy
    tls: bool = False
    #: Common Name of the client's certificate, verified by the proxy, or None without a valid certificate
    common_name: str | None = None


def read_proxy_header(data: bytes) -> tuple[ProxyHeader, int] | None:
    """Return the header at the beginning of `data` and its length, or None while it is incomplete.

    Raises ProxyHeaderError.
    """
    if data[:1] == b"P":
        return _read_1(data)
    if not data.startswith(_SIGNATURE_2[: len(data)]):
        raise ProxyHeaderError("it does not begin with a header of the PROXY protocol")
    return _read_2(data)


def _read_1(data: bytes) -> tuple[ProxyHeader, int] | None:
    line, end, _ = data[:_LONGEST_1].partition(b"\r\n")
    if not data.startswith(_SIGNATURE_1[: len(data)]) or (not end and len(data) >= _LONGEST_1):
        raise ProxyHeaderError("it does not begin with a header of the PROXY protocol")
    if not end:
        return None
    words = line.split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(), len(line) + 2
    try:
        family, source, destination, port, port_there = (word.decode("ascii") for word in words[1:])
        version = {"TCP4": 4, "TCP6": 6}[family]
        addresses = (ipaddress.ip_address(source), ipaddress.ip_address(destination))
        ports = tuple(int(one) for one in (port, port_there) if one.isdecimal() and int(one) < 65536)
        if len(ports) < 2 or any(one.version != version for one in addresses):
            raise ValueError
    except (KeyError, ValueError):
        raise ProxyHeaderError("its header of the PROXY protocol, version 1, is malformed") from None
    return ProxyHeader(str(addresses[0]), ports[0]), len(line) + 2


def _read_2(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) < _FIXED_2.size:
        return None
    _, version_command, family, length = _FIXED_2.unpack_from(data)
    command = version_command & 15
    if version_command >> 4 != 2 or command > _PROXY:
        raise ProxyHeaderError(f"its header of the PROXY protocol has version and command 0x{version_command:02X}")
    if length > _LONGEST_2:
        raise ProxyHeaderError(f"its header of the PROXY protocol is too long: {length} bytes")
    end = _FIXED_2.size + length
    if len(data) < end:
        return None
    body = data[_FIXED_2.size : end]
    if command == _LOCAL:
        return ProxyHeader(), end
    try:
        address, port, values = _addresses(family >> 4, body)
        tls, common_name = _tls(values)
    except struct.error:
        raise ProxyHeaderError("its header of the PROXY protocol, version 2, is malformed") from None
    return ProxyHeader(address, port, tls, common_name), end


def _addresses(family: int, body: bytes) -> tuple[str | None, int, bytes]:
    """Return the source's address and port, and the bytes after the addresses."""
    layout = {1: _ADDRESSES_4, 2: _ADDRESSES_6}.get(family)
    if layout is not None:
        source, _, port, _ = layout.unpack_from(body)
        return str(ipaddress.ip_address(source)), port, body[layout.size :]
    return None, 0, body[_UNIX_ADDRESSES:] if family == 3 else body


def _tls(values: bytes) -> tuple[bool, str | None]:
    """Return whether the client uses TLS, and the Common Name of its verified certificate (section 2.2.5)."""
    for kind, value in _type_length_values(values):
        if kind != _PP2_TYPE_SSL:
            continue
        client, verify = _TLS.unpack_from(value)
        if not client & _PP2_CLIENT_SSL or verify != 0 or not client & (_PP2_CLIENT_CERT_CONN | _PP2_CLIENT_CERT_SESS):
            return bool(client & _PP2_CLIENT_SSL), None
        for inner, name in _type_length_values(value[_TLS.size :]):
            if inner == _PP2_SUBTYPE_SSL_CN:
                try:
                    return True, name.decode("utf-8")
                except UnicodeDecodeError:
                    raise ProxyHeaderError("the Common Name in its header of the PROXY protocol is not UTF-8") from None
        return True, None
    return False, None


def _type_length_values(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        kind, length = struct.unpack_from("!BH", data)
        if len(data) < 3 + length:
            raise struct.error
        found.append((kind, data[3 : 3 + length]))
        data = data[3 + length :]
    return found


class ProxyLayer:
    """Removes the PROXY header, passes it to `found`, and forwards the bytes after it."""

    __slots__ = ("_begun", "_found", "ended")

    def __init__(self, found: Callable[[ProxyHeader], None]) -> None:
        self.ended = False
        self._found: Callable[[ProxyHeader], None] | None = found
        self._begun = b""

    def receive(self, data: bytes) -> bytes:
        if self._found is None:
            return data
        data = self._begun + data
        try:
            read = read_proxy_header(data)
        except ProxyHeaderError as error:
            raise LayerError(str(error)) from None
        if read is None:
            self._begun = data
            return b""
        header, length = read
        self._begun = b""
        found, self._found = self._found, None
        found(header)
        return data[length:]

    def send(self, data: bytes) -> bytes:
        return data

    def close(self) -> bytes:
        return b""
