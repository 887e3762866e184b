"""Cached User Properties: reading and writing have the same results with and without the cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import PacketType, PublishProperties
from bridge.mqtt.properties import (
    ENTRIES,
    MAX_CACHED_LENGTH,
    USER_PROPERTIES,
    UserPropertyCache,
    decode_properties,
    encode_properties,
)

PUBLISH = PacketType.PUBLISH
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=4).map(tuple)


def read(encoded: bytes) -> PublishProperties:
    decoded, behind = decode_properties(PUBLISH, encoded, 0, len(encoded), 0)
    assert behind == len(encoded)
    assert isinstance(decoded, PublishProperties)
    return decoded


def test_equal_bytes_are_one_value_and_are_written_unchanged() -> None:
    encoded = encode_properties(PUBLISH, PublishProperties(user_property=(("a", "1"), ("a", "2"))))
    first, second = read(encoded), read(encoded)
    assert first.user_property is second.user_property
    assert encode_properties(PUBLISH, first) == encoded


@given(pairs, pairs, st.booleans(), st.booleans())
def test_user_properties_before_between_and_after_others(
    some: tuple[tuple[str, str], ...], more: tuple[tuple[str, str], ...], before: bool, between: bool
) -> None:
    def written(user_properties: tuple[tuple[str, str], ...]) -> bytes:
        return encode_properties(PUBLISH, PublishProperties(user_property=user_properties))[1:]

    if any(len(written(user_properties)) > 60 for user_properties in (some, more)):
        return
    format_indicator, content_type = b"\x01\x01", b"\x03\x00\x01t"
    body = (format_indicator if before else b"") + written(some) + (content_type if between else b"") + written(more)
    encoded = (
        bytes((len(body),)) + body if len(body) < 0x80 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7)) + body
    )
    for _ in range(2):
        decoded = read(encoded)
        assert decoded.user_property == some + more
        assert (decoded.payload_format_indicator, decoded.content_type) == (
            1 if before else None,
            "t" if between else None,
        )
        assert read(encode_properties(PUBLISH, decoded)) == decoded


@given(pairs)
def test_an_equal_value_in_another_object_is_written_in_the_same_way(
    user_properties: tuple[tuple[str, str], ...],
) -> None:
    encoded = encode_properties(PUBLISH, PublishProperties(user_property=user_properties))
    assert (
        encode_properties(PUBLISH, PublishProperties(user_property=(*user_properties[:1], *user_properties[1:])))
        == encoded
    )


def test_the_cache_is_limited() -> None:
    cache = UserPropertyCache()
    for number in range(3 * ENTRIES):
        cache.remember(b"%d" % number, (("n", str(number)),))
        assert len(cache._pairs) == len(cache._bytes) <= ENTRIES
    long = (("n", "x" * MAX_CACHED_LENGTH),)
    cache.remember(b"x" * (MAX_CACHED_LENGTH + 1), long)
    assert cache.bytes_of(long) is cache.pairs_of(b"x" * (MAX_CACHED_LENGTH + 1)) is None
    encode_properties(PUBLISH, PublishProperties(user_property=long))
    assert USER_PROPERTIES.bytes_of(long) is None
