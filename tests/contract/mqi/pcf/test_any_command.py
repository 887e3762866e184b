"""Each PCF command gets one complete answer, and never MQRC_UNEXPECTED_ERROR."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire.mq.pcf import MQCFBS, MQCFH, MQCFIF, MQCFIL, MQCFIN, MQCFSF, MQCFST, encode_pcf, string_list
from tests.helpers.pcf_administrator import Administrator
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.pcf.command_server import CommandServer

NAMED = (
    cmqc.MQCA_Q_NAME,
    cmqc.MQCA_TOPIC_NAME,
    cmqc.MQCA_TOPIC_STRING,
    cmqcfc.MQCACF_SUB_NAME,
    cmqcfc.MQCACF_FROM_Q_NAME,
    cmqcfc.MQCACF_TO_Q_NAME,
    cmqcfc.MQCACF_DESTINATION,
    cmqcfc.MQCACF_AUTH_PROFILE_NAME,
    cmqcfc.MQCACF_ESCAPE_TEXT,
    cmqcfc.MQCACH_CHANNEL_NAME,
)
NUMBERS = (
    cmqc.MQIA_Q_TYPE,
    cmqc.MQIA_MAX_Q_DEPTH,
    cmqc.MQIA_USAGE,
    cmqc.MQIA_DEF_PRIORITY,
    cmqcfc.MQIACF_REPLACE,
    cmqcfc.MQIACF_PURGE,
    cmqcfc.MQIACF_OBJECT_TYPE,
    cmqcfc.MQIACF_ESCAPE_TYPE,
    cmqcfc.MQIACF_CLEAR_TYPE,
    cmqcfc.MQIACF_DESTINATION_CLASS,
    cmqcfc.MQIACF_Q_STATUS_TYPE,
    cmqcfc.MQIACF_CONN_INFO_TYPE,
    cmqcfc.MQIACF_EXPIRY,
)
LISTS = (cmqcfc.MQIACF_Q_ATTRS, cmqcfc.MQIACF_AUTH_ADD_AUTHS, cmqcfc.MQIACF_SUB_ATTRS, cmqcfc.MQIACF_Q_MGR_ATTRS)
BYTES = (cmqcfc.MQBACF_SUB_ID, cmqcfc.MQBACF_GENERIC_CONNECTION_ID, cmqcfc.MQBACF_DESTINATION_CORREL_ID)
ANY = st.sampled_from((*NAMED, *NUMBERS, *LISTS, *BYTES))
TEXT = st.sampled_from(
    (b"", b"*", b"APP.IN", b"APP.*", b"NEW", b"s1", b"PRICES", b"a/#", b"DISPLAY Q(*)", b"\xff", b"x" * 60)
)
SMALL = st.sampled_from((0, 1, 2, 3, 5, 6, 8, 1001, 1009, 1104, 1112, -1, -3, 2**31 - 1))
OPERATOR = st.sampled_from((0, 1, 2, 3, 4, 5, 6, 10, 13, 18, 21, 26, 29))
PARAMETER = st.one_of(
    st.builds(MQCFST, st.sampled_from(NAMED), TEXT),
    st.builds(MQCFIN, st.sampled_from(NUMBERS), SMALL),
    st.builds(MQCFIL, st.sampled_from(LISTS), st.lists(SMALL | ANY, max_size=3).map(tuple)),
    st.builds(MQCFBS, st.sampled_from(BYTES), st.binary(max_size=30)),
    st.builds(string_list, st.just(cmqcfc.MQCACF_GROUP_ENTITY_NAMES), st.lists(TEXT, max_size=2)),
    st.builds(MQCFIN, ANY, SMALL),
    st.builds(MQCFST, ANY, TEXT),
    st.builds(MQCFIF, ANY, OPERATOR, SMALL),
    st.builds(MQCFSF, ANY, OPERATOR, TEXT),
)
COMMANDS = sorted(value for name, value in vars(cmqcfc).items() if name.startswith("MQCMD_"))


@pytest.fixture(scope="module")
def administrator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administrator]:
    directory: Path = tmp_path_factory.mktemp("data")
    queue_manager = QueueManager("MQB1", directory)
    CommandServer(queue_manager).start()
    yield Administrator(queue_manager)
    queue_manager.close()


@given(command=st.sampled_from(COMMANDS), parameters=st.lists(PARAMETER, max_size=5))
def test_every_command_is_answered(administrator: Administrator, command: int, parameters: list[MQCFIN]) -> None:
    administrator.send(encode_pcf(MQCFH(Command=command), parameters))
    for header, _ in administrator.replied():
        assert header.Reason != cmqc.MQRC_UNEXPECTED_ERROR
        assert (header.CompCode == cmqc.MQCC_OK) == (header.Reason == cmqc.MQRC_NONE)
