"""Notations of each kind of value, and their results."""

from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from bridge import durations
from bridge.config import values

SIZE, SHARE, DURATION = values.size(0, values.GIB), values.share_or_size(1, values.GIB), values.duration(0)
INTEGER = values.integer(1, 9)
CONNECTIONS, URL = values.connections(264), values.url("file", "http", "https")
MQ1, LONGEST = "mq1.example.com(1414)", ["m(1)"] * 53  # 264 characters

#: Notation and result.
READ: list[tuple[BeforeValidator, list[tuple[object, object]]]] = [
    (
        SIZE,
        [
            (0, 0), (65536, 65536), ("0 B", 0), ("7 b", 7), ("64 KiB", 65536), ("64kib", 65536), ("64 KB", 64_000),
            ("1 MB", 1_000_000), ("10MiB", 10_485_760), ("1.5 MiB", 1_572_864), ("0.001 KB", 1), ("1 GB", 1_000_000_000),
            ("1 GiB", 1_073_741_824),
        ],
    ),
    (INTEGER, [(1, 1), (9, 9)]),
    (SHARE, [("70%", "70%"), ("1%", "1%"), ("99.5%", "99.5%"), ("100%", "100%"), ("1 MiB", 2**20), (4096, 4096)]),
    (
        DURATION,
        [(10, 10.0), (0.25, 0.25), ("500 ms", 0.5), ("10 s", 10.0), ("2 min", 120.0), ("2min", 120.0), ("1.5 h", 5400.0)],
    ),
    (
        values.address,
        [(name, name) for name in ("127.0.0.1", "0.0.0.0", "::", "::1", "localhost", "mq-1.example.com", "A_b")],
    ),
    (
        CONNECTIONS,
        [
            ("mq1(1414)", ["mq1(1414)"]), (f"{MQ1},10.0.0.1(1), ::1(65535)", [MQ1, "10.0.0.1(1)", "::1(65535)"]),
            (["mq1(1414)", "mq2(1415)"], ["mq1(1414)", "mq2(1415)"]), (LONGEST, LONGEST),
        ],
    ),
    (URL, [(url, url) for url in ("https://mq/ccdt.json", "FILE:///ccdt.json", "http://u:p@mq/c")]),
]  # fmt: skip
#: Kind, and invalid notation.
REFUSED: list[tuple[BeforeValidator, str, list[object]]] = [
    (
        SIZE, "a size from 0 B to 1 GiB",
        [
            -1, True, 1.0, None, "", "1", "KiB", "1 Ki", "1 TB", "0.5 B", "-1 B", "1 KiB ", "1,5 MiB", "1e3 B", "²B",
            "9" * 30 + " B", "1025 MiB",
        ],
    ),
    (INTEGER, "an integer from 1 to 9", [0, 10, True, 1.0, "1", None]),
    (
        SHARE, "a percentage from 1% to 100%, or a size from 1 B to 1 GiB",
        ["0%", "101%", "70 %", "%", "-5%", "1e1%", 0.7, "0.7", True, None, "2 GiB", "", "²%"],
    ),
    (
        DURATION, "a duration from 0 s to 24 h",
        [-1, True, None, "10", "s", "2 d", "10 S", "1 minute", "-1 s", "24.1 h", float("nan"), float("inf")],
    ),
    (
        values.address, "an IP address or a host name",
        [
            "", " ", "[::1]", "127.0.0.1:1883", "10.0.0.256", "127.1", "-a", "a-", "a..b", "a.", ".a", "é", "*", "a" * 64, 5,
            None, "a." * 127 + "ab",
        ],
    ),
    (CONNECTIONS, "host(port)", ["", [], None, 1414, "mq1", "mq1()", "(1)", "mq1(1)x", ["m(1),m(2)"], ["m(1)"] * 54]),
    (
        URL, "a URL that begins with file://, http:// or https://",
        ["", "ccdt.json", "https://", "ftp://mq/c", "https://a b", "http://a\0", 5, None],
    ),
]  # fmt: skip


def read(kind: BeforeValidator, value: object) -> Any:
    return TypeAdapter(Annotated[Any, kind]).validate_python(value)


def test_each_notation_has_its_value(subtests: pytest.Subtests) -> None:
    for kind, pairs in READ:
        for written, expected in pairs:
            with subtests.test(written=written):
                converted = read(kind, written)
                assert (converted, type(converted)) == (expected, type(expected))


def test_invalid_notations_are_rejected(subtests: pytest.Subtests) -> None:
    for kind, expected, listed in REFUSED:
        for written in listed:
            with subtests.test(expected=expected, written=written), pytest.raises(ValidationError) as raised:
                read(kind, written)
            assert f"expected {expected}" in str(raised.value)


def test_values_are_described_in_words(subtests: pytest.Subtests) -> None:
    sizes = {0: "0 B", 1: "1 B", 1024: "1 KiB", 4 * 1024**2: "4 MiB", 1024**3: "1 GiB", 268_435_455: "268435455 B"}
    for size, text in sizes.items():
        with subtests.test(size=size):
            assert (values.size_text(size), read(SIZE, text)) == (text, size)
    times = {0.0: "0 s", 0.001: "1 ms", 0.5: "500 ms", 1.5: "1500 ms", 10.0: "10 s", 90.0: "90 s", 120.0: "2 min"}
    for seconds, text in (times | {86400.0: "24 h"}).items():
        with subtests.test(seconds=seconds):
            assert (durations.shown(seconds), read(DURATION, text)) == (text, seconds)


def test_loopback_addresses_are_recognized(subtests: pytest.Subtests) -> None:
    for loopback, addresses in (
        (True, ("127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST")),
        (False, ("0.0.0.0", "::", "10.0.0.1", "localhost.example.com")),
    ):
        for address in addresses:
            with subtests.test(address=address):
                assert values.is_loopback(address) is loopback
