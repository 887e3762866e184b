"""How each kind of value is written, and what it comes to."""

from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from bridge import durations
from bridge.config import values


def read(kind: BeforeValidator, value: object) -> Any:
    return TypeAdapter(Annotated[Any, kind]).validate_python(value)


def test_a_size(subtests: pytest.Subtests) -> None:
    for written, number in [
        (0, 0), (65536, 65536), ("0 B", 0), ("7 b", 7), ("64 KiB", 65536), ("64kib", 65536), ("64 KB", 64_000),
        ("1 MB", 1_000_000), ("10MiB", 10_485_760), ("1.5 MiB", 1_572_864), ("0.001 KB", 1), ("1 GB", 1_000_000_000),
        ("1 GiB", 1_073_741_824),
    ]:  # fmt: skip
        with subtests.test(written=written, number=number):
            assert read(values.size(0, values.GIB), written) == number


@pytest.mark.parametrize(
    ("written", "read_as"),
    [("70%", "70%"), ("1%", "1%"), ("99.5%", "99.5%"), ("100%", "100%"), ("1 MiB", 2**20), (4096, 4096)],
)
def test_a_share_or_size(written: object, read_as: str | int) -> None:
    assert read(values.share_or_size(1, values.GIB), written) == read_as


def test_no_share_or_size(subtests: pytest.Subtests) -> None:
    for written in ["0%", "101%", "70 %", "%", "-5%", "1e1%", 0.7, "0.7", True, None, "2 GiB", "", "²%"]:
        with (
            subtests.test(written=written),
            pytest.raises(ValidationError, match="expected a percentage from 1% to 100%, or a size from 1 B to 1 GiB"),
        ):
            read(values.share_or_size(1, values.GIB), written)


def test_no_size(subtests: pytest.Subtests) -> None:
    for written in [
        -1, True, 1.0, None, "", "1", "KiB", "1 Ki", "1 TB", "0.5 B", "-1 B", "1 KiB ", "1,5 MiB", "1e3 B", "²B",
        "9" * 30 + " B", "1025 MiB",
    ]:  # fmt: skip
        with subtests.test(written=written), pytest.raises(ValidationError, match="expected a size from 0 B to 1 GiB"):
            read(values.size(0, values.GIB), written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(10, 10.0), (0.25, 0.25), ("500 ms", 0.5), ("10 s", 10.0), ("2 min", 120.0), ("2min", 120.0), ("1.5 h", 5400.0)],
)
def test_a_duration(written: object, seconds: float) -> None:
    result = read(values.duration(0), written)
    assert result == seconds
    assert isinstance(result, float)


def test_no_duration(subtests: pytest.Subtests) -> None:
    for written in [-1, True, None, "10", "s", "2 d", "10 S", "1 minute", "-1 s", "24.1 h", float("nan"), float("inf")]:
        with subtests.test(written=written), pytest.raises(ValidationError, match="expected a duration from 0 s to 24 h"):
            read(values.duration(0), written)


def test_an_address(subtests: pytest.Subtests) -> None:
    for address in ["127.0.0.1", "0.0.0.0", "::", "::1", "localhost", "mq-1.example.com", "a", "A_b"]:
        with subtests.test(address=address):
            assert read(values.address, address) == address


def test_no_address(subtests: pytest.Subtests) -> None:
    for address in [
        "", " ", "[::1]", "127.0.0.1:1883", "10.0.0.256", "127.1", "-a", "a-", "a..b", "a.", ".a", "é", "*", "a" * 64, 5,
        None, "a." * 127 + "ab",
    ]:  # fmt: skip
        with subtests.test(address=address), pytest.raises(ValidationError, match="expected an IP address or a host name"):
            read(values.address, address)


def test_loopback(subtests: pytest.Subtests) -> None:
    for address, loopback in [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example.com", False),
    ]:  # fmt: skip
        with subtests.test(address=address, loopback=loopback):
            assert values.is_loopback(address) is loopback


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 B"), (1, "1 B"), (1024, "1 KiB"), (4 * 1024**2, "4 MiB"), (1024**3, "1 GiB"), (268_435_455, "268435455 B")],
)
def test_a_size_in_words(number: int, said: str) -> None:
    assert values.size_text(number) == said
    assert read(values.size(0, values.GIB), said) == number


def test_a_duration_in_words(subtests: pytest.Subtests) -> None:
    for seconds, said in [
        (0.0, "0 s"), (0.001, "1 ms"), (0.5, "500 ms"), (1.5, "1500 ms"), (10.0, "10 s"), (90.0, "90 s"), (120.0, "2 min"),
        (86400.0, "24 h"),
    ]:  # fmt: skip
        with subtests.test(seconds=seconds, said=said):
            assert durations.shown(seconds) == said
            assert read(values.duration(0), said) == seconds


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("mq1(1414)", ["mq1(1414)"]),
        ("mq1.example.com(1414),10.0.0.1(1), ::1(65535)", ["mq1.example.com(1414)", "10.0.0.1(1)", "::1(65535)"]),
        (["mq1(1414)", "mq2(1415)"], ["mq1(1414)", "mq2(1415)"]),
        (["m(1)"] * 53, ["m(1)"] * 53),  # 264 characters
    ],
)
def test_connections(written: object, names: list[str]) -> None:
    assert read(values.connections(264), written) == names


def test_no_connections(subtests: pytest.Subtests) -> None:
    for written in ["", [], None, 1414, "mq1", "mq1()", "(1)", "mq1(1)x", ["m(1),m(2)"], ["m(1)"] * 54]:
        with subtests.test(written=written), pytest.raises(ValidationError, match=r"expected host\(port\)"):
            read(values.connections(264), written)


@pytest.mark.parametrize("written", ["https://mq/ccdt.json", "FILE:///ccdt.json", "http://u:p@mq/c"])
def test_a_url(written: str) -> None:
    assert read(values.url("file", "http", "https"), written) == written


def test_no_url(subtests: pytest.Subtests) -> None:
    for written in ["", "ccdt.json", "https://", "ftp://mq/c", "https://a b", "http://a\0", 5, None]:
        with (
            subtests.test(written=written),
            pytest.raises(ValidationError, match="expected a URL that begins with http:// or https://"),
        ):
            read(values.url("http", "https"), written)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://mq/ccdt.json", "https://mq/ccdt.json"),
        ("https://u:p@mq:443/a@b/ccdt.json", "https://mq:443/a@b/ccdt.json"),
        ("ftp://u:p@q@mq", "ftp://mq"),
        ("file:///etc/ccdt.json", "file:///etc/ccdt.json"),
    ],
)
def test_a_url_without_its_password(url: str, shown: str) -> None:
    assert values.without_password(url) == shown
