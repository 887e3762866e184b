"""The structures of the MQI with the fields that the bridge does not use."""

from __future__ import annotations

import msgspec

from bridge.mq.mqi import MQSD, GetOptions, Got, MQError, Property
from bridge.wire import cmqc
from bridge.wire.mq import MQLONG


class MQPMO(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Put message options. MQPUT updates the fields under "Results" in place."""

    Options: MQLONG = cmqc.MQPMO_NONE
    #: with MQPMO_PASS_…_CONTEXT: handle of a queue opened with MQOO_SAVE_ALL_CONTEXT
    Context: MQLONG = 0
    #: a publication is delivered to the subscriptions with the highest SubLevel that does not exceed this
    PubLevel: MQLONG = 9
    # Results
    ResolvedQName: str = ""
    ResolvedQMgrName: str = ""
    KnownDestCount: MQLONG = 0
    UnknownDestCount: MQLONG = 0
    InvalidDestCount: MQLONG = 0
    #: extension: MQRC_NONE, or the reason code of an MQCC_WARNING (the message was put)
    Reason: MQLONG = cmqc.MQRC_NONE


class MqiGetOptions(GetOptions, frozen=True, kw_only=True, omit_defaults=True):
    """MQGMO, and the MQMD fields that MQGET reads: those for MatchOptions and MQGMO_CONVERT."""

    GroupId: bytes = bytes(24)
    MsgSeqNumber: MQLONG = 1
    Offset: MQLONG = 0
    #: 0 without a message handle. Otherwise, properties are returned in the handle, subject to PROPCTL
    MsgHandle: MQLONG = 0
    #: target encoding of MQGMO_CONVERT
    Encoding: MQLONG = cmqc.MQENC_NATIVE

    @classmethod
    def of(cls, options: GetOptions) -> MqiGetOptions:
        """Return options with the further fields."""
        if isinstance(options, cls):
            return options
        return cls(**{name: getattr(options, name) for name in GetOptions.__struct_fields__})


class MqiGot(Got, kw_only=True):
    """The result of MQGET."""

    ResolvedQName: str = ""
    ReturnedLength: int = 0
    GroupStatus: bytes = cmqc.MQGS_NOT_IN_GROUP
    SegmentStatus: bytes = cmqc.MQSS_NOT_A_SEGMENT
    Segmentation: bytes = b" "
    #: the message properties, if requested in a message handle
    properties: list[Property] = msgspec.field(default_factory=list)


class MqiSubscriptionDescriptor(MQSD, kw_only=True, omit_defaults=True):
    """MQSD. MQSUB updates the fields for a resumed subscription."""

    PubPriority: MQLONG = cmqc.MQPRI_PRIORITY_AS_PUBLISHED
    PubAccountingToken: bytes = cmqc.MQACT_NONE
    PubApplIdentityData: str = ""
    SelectionString: str = ""

    def check(self) -> None:
        """Raise MQError if a value does not fit its field. Pad PubAccountingToken."""
        sizes = {
            "PubAccountingToken": (len(self.PubAccountingToken), 32),
            "PubApplIdentityData": (len(self.PubApplIdentityData.encode()), 32),
        }
        for name, (size, room) in sizes.items():
            if size > room:
                raise MQError(cmqc.MQRC_SD_ERROR, f"{name} takes {room} bytes, not {size}")
        self.PubAccountingToken = self.PubAccountingToken.ljust(32, b"\0")

    @classmethod
    def of(cls, sd: MQSD) -> MqiSubscriptionDescriptor:
        """Return a descriptor with the further fields."""
        if isinstance(sd, cls):
            return sd
        return cls(**{name: getattr(sd, name) for name in MQSD.__struct_fields__})
