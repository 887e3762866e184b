"""The MQI constants: numbers that a slip would hurt most, and what holds for all of a prefix."""

import pytest

from testing.ibm_standin import cmqc


def test_a_reason_has_the_number_and_the_name_that_ibm_gives_it(subtests: pytest.Subtests) -> None:
    for name, number in [
        ("MQRC_NONE", 0),
        ("MQRC_CONNECTION_BROKEN", 2009),
        ("MQRC_NO_MSG_AVAILABLE", 2033),
        ("MQRC_NOT_AUTHORIZED", 2035),
        ("MQRC_OBJECT_IN_USE", 2042),
        ("MQRC_Q_FULL", 2053),
        ("MQRC_Q_MGR_NOT_AVAILABLE", 2059),
        ("MQRC_TRUNCATED_MSG_FAILED", 2080),
        ("MQRC_UNKNOWN_OBJECT_NAME", 2085),
        ("MQRC_FORMAT_ERROR", 2110),
        ("MQRC_CONVERTED_MSG_TOO_BIG", 2120),
        ("MQRC_STORAGE_MEDIUM_FULL", 2192),
        ("MQRC_CALL_IN_PROGRESS", 2219),
        ("MQRC_UNIT_OF_WORK_NOT_STARTED", 2232),
        ("MQRC_MSG_TOKEN_ERROR", 2331),
        ("MQRC_NO_SUBSCRIPTION", 2428),
        ("MQRC_PROPERTY_NOT_AVAILABLE", 2471),
        ("MQRC_SUB_INHIBITED", 2503),
        ("MQRC_HOST_NOT_AVAILABLE", 2538),
        ("MQRC_UNKNOWN_CHANNEL_NAME", 2540),
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
    assert cmqc.completion_name(2) == "MQCC_FAILED"
    assert cmqc.completion_name(7) == "MQCC_7"


def test_reason_codes_are_many_and_lie_in_ibms_ranges() -> None:
    reasons = {name: value for name, value in cmqc.code_numbers().items() if name.startswith("MQRC_")}
    assert len(reasons) > 500
    for name, value in reasons.items():
        assert value == 0 or 900 <= value < 1000 or 2000 < value < 2700 or 6100 <= value < 6200, name


def test_the_values_of_a_prefix_are_of_one_kind() -> None:
    for name, value in vars(cmqc).items():
        if name.startswith("MQFMT_"):
            assert isinstance(value, bytes) and len(value) <= 8 and not value.endswith(b" "), name
        elif name.endswith("_STRUC_ID"):
            assert isinstance(value, bytes) and len(value) == 4, name
        elif name.startswith(("MQRC_", "MQOO_", "MQPMO_", "MQGMO_", "MQSO_", "MQRO_", "MQIA_", "MQCA_", "MQENC_")):
            assert isinstance(value, int) and -0x80000000 <= value <= 0x7FFFFFFF, name


@pytest.mark.parametrize("prefix", ["MQOO_", "MQPMO_", "MQGMO_", "MQSO_", "MQMO_", "MQCO_"])
def test_options_are_single_bits_and_no_two_share_one(prefix: str) -> None:
    combined = {"MQGMO_BROWSE_HANDLE", "MQGMO_BROWSE_CO_OP"}
    second_names = {"MQOO_RESOLVE_LOCAL_TOPIC"}
    bits = [
        value
        for name, value in vars(cmqc).items()
        if name.startswith(prefix) and value and "_VERSION_" not in name and name not in combined | second_names
    ]
    assert all(value.bit_count() == 1 for value in bits)
    assert len(bits) == len(set(bits))


def test_combined_values_are_made_of_their_parts() -> None:
    reversed_ = cmqc.MQENC_INTEGER_REVERSED | cmqc.MQENC_DECIMAL_REVERSED | cmqc.MQENC_FLOAT_IEEE_REVERSED
    normal = cmqc.MQENC_INTEGER_NORMAL | cmqc.MQENC_DECIMAL_NORMAL | cmqc.MQENC_FLOAT_IEEE_NORMAL
    assert cmqc.MQENC_NATIVE == cmqc.MQENC_REVERSED == reversed_ == 546
    assert cmqc.MQENC_NORMAL == normal == 273
    co_op = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_CO_OP
    assert co_op == cmqc.MQGMO_BROWSE_CO_OP
