"""Names of reason codes. tests/contract/mqi/test_layout.py compares the constants with those of the real packages."""

import pytest

from bridge.wire import cmqc


def test_a_reason_has_ibms_number_and_name(subtests: pytest.Subtests) -> None:
    """Reasons of the MQI and of command messages, and those in reason_codes.txt."""
    for name, number in [
        ("MQRC_NONE", 0),
        ("MQRC_Q_FULL", 2053),
        ("MQRC_CALL_IN_PROGRESS", 2219),
        ("MQRC_CHANNEL_BLOCKED", 2577),
        ("MQRCCF_TOPIC_STRING_NOT_FOUND", 3308),
        ("MQRCCF_CLIENT_ID_NOT_FOUND", 3322),
    ]:
        with subtests.test(name=name, number=number):
            assert cmqc.code_numbers()[name] == number
            assert cmqc.reason_name(number) == name


def test_unknown_codes_keep_their_number() -> None:
    assert cmqc.reason_name(2999) == "MQRC_2999"
    assert cmqc.reason_name(-1) == "MQRC_-1"


def test_reason_codes_are_many_and_in_ibms_ranges() -> None:
    reasons = {name: value for name, value in cmqc.code_numbers().items() if name.startswith("MQRC_")}
    assert len(reasons) > 500
    for name, value in reasons.items():
        assert value == 0 or 900 <= value < 1000 or 2000 < value < 2700 or 6100 <= value < 6200, name


def test_formats_have_no_trailing_blanks() -> None:
    for name, value in vars(cmqc).items():
        if name.startswith("MQFMT_"):
            assert len(value) <= 8 and not value.endswith(b" "), name
