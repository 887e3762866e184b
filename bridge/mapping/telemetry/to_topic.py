"""A publication for the bridge's own clients: as an MQ message to its topic, since they are subscribers of MQ."""

from __future__ import annotations

import msgspec

from bridge.mapping.message import Message
from bridge.mapping.publication import Destination, MappedMessage, Publication
from bridge.mapping.telemetry.headers import descriptor, rfh2_of
from bridge.mapping.telemetry.publish_properties import correl_id_of, expiry_of
from bridge.mapping.telemetry.qos import PERSISTENCE_FROM_QOS
from bridge.wire import cmqc


def message_of(publication: Publication) -> MappedMessage:
    """Return the message that a client would have published (integration tables 1 and 2), with all else the publication has.

    The message is for a topic, so its mqps folder is the queue manager's to write. Raises Unmappable for what no RFH2 can
    hold.
    """
    return MappedMessage(
        destination=Destination(publication.topic, True),
        message=_message(publication, None),
        retain=publication.retain,
        clear=publication.retain and not publication.payload,
        hops=publication.hops,
    )


def received_message(publication: Publication) -> Message:
    """Return the same message as a subscriber has it, topic and whether it is retained included, or raise Unmappable."""
    return _message(publication, (publication.topic, publication.retain))


def _message(publication: Publication, mqps: tuple[str, bool] | None) -> Message:
    correl_id = correl_id_of(publication.correlation_data)
    md = descriptor(publication.user, PERSISTENCE_FROM_QOS[publication.qos], expiry_of(publication.expiry))
    if correl_id != cmqc.MQCI_NONE:
        md = msgspec.structs.replace(md, CorrelId=correl_id)
    header = rfh2_of(publication, publication.properties, publication.hops, correl_id, mqps=mqps)
    return Message(md, header + publication.payload)
