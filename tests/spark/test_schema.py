"""The envelopes have every field."""

from __future__ import annotations

from bridge.spark import columns
from bridge.wire.mq import MQDLH, MQMD


def test_structures_have_every_field() -> None:
    assert [field.name for field in columns.MD_TYPE] == list(MQMD.__struct_fields__)
    assert [field.name for field in columns.MQDLH_TYPE] == list(MQDLH.__struct_fields__)
    assert [field.name for field in columns.MD_VERSION_1_TYPE] == list(MQMD.__struct_fields__)[:-5]
