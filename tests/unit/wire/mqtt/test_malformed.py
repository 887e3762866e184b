"""Each rule of the decoder, violated: packet, offset and rule in the error, and the packets before it."""

from __future__ import annotations

import gc
import weakref

import pytest

from bridge.mqtt.packets import Pingreq, Pingresp
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import MalformedPacket

TO_SERVER = [
    # Fixed header
    ("00 00", "fixed header", 0, "MQTT 3.1 section 2.1: message type 0 is reserved"),
    ("f0 00", "fixed header", 0, "MQTT 3.1 section 2.1: message type 15 is reserved"),
    ("20 02 00 00", "CONNACK", 0, "MQTT 3.1.1 table 2.1"),
    ("90 03 000a 00", "SUBACK", 0, "MQTT 3.1.1 table 2.1"),
    ("b0 02 000a", "UNSUBACK", 0, "MQTT 3.1.1 table 2.1"),
    ("d0 00", "PINGRESP", 0, "MQTT 3.1.1 table 2.1"),
    ("30 ff ff ff ff 01", "PUBLISH", 4, "MQTT 3.1 section 2.1: Remaining Length takes four bytes"),
    # Flags
    ("11 0d 00044d515454 04 02 0000 000163", "CONNECT", 0, "MQTT-2.2.2-2"),
    ("41 02 000a", "PUBACK", 0, "MQTT-2.2.2-2"),
    ("52 02 000a", "PUBREC", 0, "MQTT-2.2.2-2"),
    ("60 02 000a", "PUBREL", 0, "MQTT-3.6.1-1"),
    ("6a 02 000a", "PUBREL", 0, "MQTT-3.6.1-1"),
    ("78 02 000a", "PUBCOMP", 0, "MQTT-2.2.2-2"),
    ("80 06 000a 000161 00", "SUBSCRIBE", 0, "MQTT-3.8.1-1"),
    ("8a 06 000a 000161 00", "SUBSCRIBE", 0, "MQTT-3.8.1-1"),
    ("84 06 000a 000161 00", "SUBSCRIBE", 0, "MQTT-3.8.1-1"),
    ("a0 05 000a 000161", "UNSUBSCRIBE", 0, "MQTT-3.10.1-1"),
    ("a3 05 000a 000161", "UNSUBSCRIBE", 0, "MQTT-3.10.1-1"),
    ("c1 00", "PINGREQ", 0, "MQTT-2.2.2-2"),
    ("e8 00", "DISCONNECT", 0, "MQTT-2.2.2-2"),
    # PUBLISH
    ("36 07 0003612f62 000a", "PUBLISH", 0, "MQTT-3.3.1-4"),
    ("38 05 0003612f62", "PUBLISH", 0, "MQTT-3.3.1-2"),
    ("32 07 0003612f62 0000", "PUBLISH", 7, "MQTT-2.3.1-1"),
    ("30 02 0000", "PUBLISH", 2, "MQTT-4.7.3-1"),
    ("32 04 0000 000a", "PUBLISH", 2, "MQTT-4.7.3-1"),
    ("30 05 0003612f2b", "PUBLISH", 2, "MQTT-3.3.2-2"),
    ("30 05 0003612f23", "PUBLISH", 2, "MQTT-3.3.2-2"),
    ("30 05 0003610062", "PUBLISH", 2, "MQTT-1.5.3-2"),
    ("30 05 0003eda080", "PUBLISH", 2, "MQTT-1.5.3-1"),  # surrogate
    ("30 04 0002c080", "PUBLISH", 2, "MQTT-1.5.3-1"),  # U+0000 in two bytes, as Java writes it
    ("30 03 0001ff", "PUBLISH", 2, "MQTT-1.5.3-1"),
    ("30 05 0004612f62", "PUBLISH", 2, "MQTT 3.1.1 section 1.5.3"),
    ("30 01 00", "PUBLISH", 2, "MQTT 3.1.1 section 2.2.3"),
    ("30 00", "PUBLISH", 2, "MQTT 3.1.1 section 2.2.3"),
    ("32 05 0003612f62", "PUBLISH", 7, "MQTT 3.1.1 section 2.2.3"),
    ("32 06 0003612f62 00", "PUBLISH", 7, "MQTT 3.1.1 section 2.2.3"),
    ("30 8500 0003612f23", "PUBLISH", 3, "MQTT-3.3.2-2"),  # the offset counts all bytes of Remaining Length
    # Packets with a message id
    ("40 02 0000", "PUBACK", 2, "MQTT-2.3.1-1"),
    ("50 02 0000", "PUBREC", 2, "MQTT-2.3.1-1"),
    ("62 02 0000", "PUBREL", 2, "MQTT-2.3.1-1"),
    ("70 02 0000", "PUBCOMP", 2, "MQTT-2.3.1-1"),
    ("40 00", "PUBACK", 2, "MQTT 3.1.1 section 2.2.3"),
    ("40 01 01", "PUBACK", 2, "MQTT 3.1.1 section 2.2.3"),
    ("40 03 000a 00", "PUBACK", 4, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
    ("62 03 000a 00", "PUBREL", 4, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
    # Packets without content
    ("c0 01 00", "PINGREQ", 2, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
    ("e0 01 00", "DISCONNECT", 2, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
    # SUBSCRIBE and UNSUBSCRIBE
    ("82 06 0000 000161 00", "SUBSCRIBE", 2, "MQTT-2.3.1-1"),
    ("82 02 000a", "SUBSCRIBE", 4, "MQTT-3.8.3-3"),
    ("82 06 000a 000161 03", "SUBSCRIBE", 7, "MQTT-3.8.3-4"),
    ("82 06 000a 000161 41", "SUBSCRIBE", 7, "MQTT-3.8.3-4"),
    ("82 05 000a 000161", "SUBSCRIBE", 7, "MQTT 3.1.1 section 2.2.3"),
    ("82 05 000a 0000 00", "SUBSCRIBE", 4, "MQTT-4.7.3-1"),
    ("82 06 000a 000100 00", "SUBSCRIBE", 4, "MQTT-1.5.3-2"),
    ("82 0a 000a 000161 00 0001ff 00", "SUBSCRIBE", 8, "MQTT-1.5.3-1"),
    ("a2 05 0000 000161", "UNSUBSCRIBE", 2, "MQTT-2.3.1-1"),
    ("a2 02 000a", "UNSUBSCRIBE", 4, "MQTT-3.10.3-2"),
    ("a2 04 000a 0000", "UNSUBSCRIBE", 4, "MQTT-4.7.3-1"),
    ("a2 05 000a 000261", "UNSUBSCRIBE", 4, "MQTT 3.1.1 section 1.5.3"),
    ("a2 06 000a 000161 00", "UNSUBSCRIBE", 7, "MQTT 3.1.1 section 2.2.3"),
    # CONNECT
    ("10 00", "CONNECT", 2, "MQTT 3.1.1 section 2.2.3"),
    ("10 04 0004 4d51", "CONNECT", 2, "MQTT 3.1.1 section 1.5.3"),
    ("10 03 0001ff", "CONNECT", 2, "MQTT-1.5.3-1"),
    ("10 06 00044d515454", "CONNECT", 8, "MQTT 3.1.1 section 2.2.3: packet ends within protocol level"),
    ("10 0d 00044d515454 04 03 0000 000163", "CONNECT", 9, "MQTT-3.1.2-3"),
    ("10 12 00044d515454 04 1e 0000 000163 000177 0000", "CONNECT", 9, "MQTT-3.1.2-14"),
    ("10 0d 00044d515454 04 0a 0000 000163", "CONNECT", 9, "MQTT-3.1.2-11"),
    ("10 0d 00044d515454 04 22 0000 000163", "CONNECT", 9, "MQTT-3.1.2-11"),
    ("10 10 00044d515454 04 42 0000 000163 000170", "CONNECT", 9, "MQTT-3.1.2-22"),
    ("10 09 00044d515454 04 02 00", "CONNECT", 10, "MQTT 3.1.1 section 2.2.3: packet ends within keep alive"),
    ("10 0a 00044d515454 04 02 0000", "CONNECT", 12, "MQTT 3.1.1 section 2.2.3"),
    ("10 0d 00044d515454 04 02 0000 000100", "CONNECT", 12, "MQTT-1.5.3-2"),
    ("10 11 00044d515454 04 06 0000 000163 0000 0000", "CONNECT", 15, "MQTT-4.7.3-1"),
    ("10 12 00044d515454 04 06 0000 000163 000123 0000", "CONNECT", 15, "MQTT-3.3.2-2"),
    ("10 10 00044d515454 04 06 0000 000163 000177", "CONNECT", 18, "MQTT 3.1.1 section 2.2.3"),
    ("10 0d 00044d515454 04 82 0000 000163", "CONNECT", 15, "MQTT 3.1.1 section 2.2.3"),
    ("10 10 00044d515454 04 c2 0000 000163 000175", "CONNECT", 18, "MQTT 3.1.1 section 2.2.3"),
    ("10 10 00044d515454 04 82 0000 000163 0001ff", "CONNECT", 15, "MQTT-1.5.3-1"),
    ("10 0e 00044d515454 04 02 0000 000163 00", "CONNECT", 15, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
]
TO_CLIENT = [
    ("00 00", "fixed header", 0, "MQTT 3.1 section 2.1: message type 0 is reserved"),
    ("10 0d 00044d515454 04 02 0000 000163", "CONNECT", 0, "MQTT 3.1.1 table 2.1"),
    ("82 06 000a 000161 00", "SUBSCRIBE", 0, "MQTT 3.1.1 table 2.1"),
    ("a2 05 000a 000161", "UNSUBSCRIBE", 0, "MQTT 3.1.1 table 2.1"),
    ("c0 00", "PINGREQ", 0, "MQTT 3.1.1 table 2.1"),
    ("e0 00", "DISCONNECT", 0, "MQTT 3.1.1 table 2.1"),
    ("21 02 00 00", "CONNACK", 0, "MQTT-2.2.2-2"),
    ("20 02 02 00", "CONNACK", 2, "MQTT 3.1.1 section 3.2.2.1"),
    ("20 02 01 05", "CONNACK", 2, "MQTT-3.2.2-4"),
    ("20 01 00", "CONNACK", 3, "MQTT 3.1.1 section 2.2.3"),
    ("20 03 00 00 00", "CONNACK", 4, "MQTT 3.1.1 section 2.2.3"),
    ("92 03 000a 00", "SUBACK", 0, "MQTT-2.2.2-2"),
    ("90 03 0000 00", "SUBACK", 2, "MQTT-2.3.1-1"),
    ("90 02 000a", "SUBACK", 4, "MQTT 3.1.1 section 3.9.3"),
    ("90 04 000a 00 03", "SUBACK", 5, "MQTT-3.9.3-2"),
    ("90 04 000a 81 00", "SUBACK", 4, "MQTT-3.9.3-2"),
    ("b2 02 000a", "UNSUBACK", 0, "MQTT-2.2.2-2"),
    ("b0 02 0000", "UNSUBACK", 2, "MQTT-2.3.1-1"),
    ("b0 03 000a 00", "UNSUBACK", 4, "MQTT 3.1.1 section 2.2.3"),
    ("d1 00", "PINGRESP", 0, "MQTT-2.2.2-2"),
    ("d0 01 00", "PINGRESP", 2, "MQTT 3.1.1 section 2.2.3"),
    ("36 07 0003612f62 000a", "PUBLISH", 0, "MQTT-3.3.1-4"),
]
CASES = [(True, *case) for case in TO_SERVER] + [(False, *case) for case in TO_CLIENT]
# First a valid PUBLISH: its topic is then known, and malformed ones with the same topic use the fast path.
KNOWN_TOPIC = bytes.fromhex("30050003612f62")


def test_malformed_packet(subtests: pytest.Subtests) -> None:
    for server, wire, packet, offset, rule in CASES:
        with subtests.test(server=server, wire=wire, packet=packet, offset=offset, rule=rule):
            good, good_packet = (b"\xc0\x00", Pingreq()) if server else (b"\xd0\x00", Pingresp())
            decoder = Decoder(server=server, protocol_level=4)
            assert len(decoder.feed(KNOWN_TOPIC)) == 1
            # Earlier packets are processed, later ones are not.
            assert decoder.feed(good * 2 + bytes.fromhex(wire) + good) == [good_packet] * 2
            error = decoder.error
            assert isinstance(error, MalformedPacket)
            assert (error.packet, error.offset) == (packet, offset), str(error)
            assert error.rule.startswith(rule)
            assert str(error) == f"{packet} at byte {offset}: {error.rule}"
            assert decoder.feed(good) == []
            assert decoder.error is error
            bytewise = Decoder(server=server, protocol_level=4)
            assert [packet for byte in bytes.fromhex(wire) for packet in bytewise.feed(bytes((byte,)))] == []
            assert str(bytewise.error) == str(error)


@pytest.mark.parametrize("wire", ["00", "f7", "20", "d0 ff"])
def test_an_invalid_type_is_rejected_at_its_first_byte(wire: str) -> None:
    decoder = Decoder()
    decoder.feed(bytes.fromhex(wire))
    assert decoder.error is not None
    assert decoder.error.offset == 0


@pytest.mark.parametrize(("length", "wire"), [(11, "30 0b"), (130, "30 8201"), (20_000, "30 a09c01")])
def test_a_packet_larger_than_allowed_is_rejected_at_its_length(length: int, wire: str) -> None:
    """The size is that of the whole packet (MQTT 5 section 2.1.4), as the property Maximum Packet Size counts it."""
    header = bytes.fromhex(wire)
    size = len(header) + length
    decoder = Decoder(max_packet_size=size - 1)
    assert decoder.feed(header[:-1]) == []
    assert decoder.error is None
    assert decoder.feed(header[-1:]) == []
    assert decoder.error is not None
    assert (decoder.error.packet, decoder.error.offset) == ("PUBLISH", 1)
    assert decoder.error.rule.startswith(f"max_packet_size: {size} bytes")
    largest_allowed = Decoder(max_packet_size=size)
    assert len(largest_allowed.feed(header + b"\0\x01a" + bytes(length - 3))) == 1


def test_the_error_keeps_no_other_object_alive() -> None:
    class Buffer(bytearray):
        pass

    gc.collect()
    gc.disable()
    try:
        decoder = Decoder()
        buffer = Buffer(b"\x30\x03\0\x01\xff")
        decoder.feed(buffer)
        error = decoder.error
        assert error is not None
        assert error.__traceback__ is None
        assert error.__context__ is None
        reference = weakref.ref(buffer)
        del buffer
        assert reference() is None
    finally:
        gc.enable()
