"""Messages on the transmission queue that no queue manager put."""

from __future__ import annotations

import pytest

from bridge.mq.ibm.transmission import read_transmission
from bridge.mq.mqi import Got
from bridge.wire.mq import MQMD, MQXQH, MalformedHeader, encode_mqxqh


@pytest.mark.parametrize("format", [b"MQSTR", b""])
def test_a_message_of_another_format_is_malformed_even_if_it_begins_like_an_mqxqh(format: bytes) -> None:
    data = encode_mqxqh(MQXQH(RemoteQName=b"T", RemoteQMgrName=b"dev-1")) + b"21.5"
    with pytest.raises(MalformedHeader, match="not MQXMIT"):
        read_transmission(Got(md=MQMD(Format=format), data=data))
