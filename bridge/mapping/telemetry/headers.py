"""What goes with a publication to MQ: folders of an RFH2, or the same as message properties, and fields of the MQMD.

The standard is integration tables 1 and 2; what it does not know (MQTT 5, user properties, the hop mark) stands behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from bridge.mapping.hops import HOPS_PROPERTY, hops_folder, hops_text
from bridge.mapping.message import CCSID_UTF8
from bridge.mapping.property_name import property_name
from bridge.mapping.publication import Publication, Unmappable
from bridge.mapping.telemetry.folders import mqps_folder, mqtt_content
from bridge.mapping.telemetry.publish_properties import add_elements, body_format, named
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, MalformedHeader, Typed, Writable, encode_rfh2


@lru_cache(maxsize=4096)
def descriptor(
    user: bytes, persistence: int, expiry: int, priority: int = cmqc.MQPRI_PRIORITY_AS_Q_DEF,
    format: bytes = cmqc.MQFMT_RF_HEADER_2, ccsid: int = cmqc.MQCCSI_Q_MGR,
) -> MQMD:  # fmt: skip
    """Return the MQMD that messages of the same kind share."""
    return MQMD(
        Format=format,
        CodedCharSetId=ccsid,
        UserIdentifier=user,
        Priority=priority,
        Persistence=persistence,
        Expiry=expiry,
    )


def rfh2_of(
    publication: Publication,
    properties: Mapping[str, str],
    hops: tuple[str, ...],
    correl_id: bytes,
    *,
    mqps: tuple[str, bool] | None,
    original_topic: str = "",
    format: bytes | None = None,
    ccsid: int = CCSID_UTF8,
) -> bytes:
    """Encode the RFH2 with its folders mqtt, mqps, usr and mqbridge.

    `mqps` is the topic and whether it is retained; None: the folder is left to the queue manager. `correl_id` is
    that of the MQMD; Correlation Data that it does not hold are written here. `format` and `ccsid` are those of the body,
    None: as the Payload Format Indicator says. Raises Unmappable for what no RFH2 can hold (MQRC_RFH_FORMAT_ERROR).
    """
    try:
        folders = [Folder.build("mqtt", _mqtt_content(publication, properties, original_topic, correl_id))]
        if mqps is not None:
            folders.append(mqps_folder(*mqps, None))
        if properties:
            folders.append(Folder.build("usr", named((*properties.items(),))))
        if hops:
            folders.append(hops_folder(hops))
        return encode_rfh2(
            RFH2(
                Encoding=cmqc.MQENC_NATIVE,
                CodedCharSetId=ccsid,
                Format=body_format(publication.payload_format) if format is None else format,
                NameValueCCSID=CCSID_UTF8,
                folders=tuple(folders),
            )
        )
    except MalformedHeader as error:
        why = f"a property of the publication cannot be written in an RFH2: {error.rule}"
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why) from error


def properties_of(
    publication: Publication,
    properties: Mapping[str, str],
    hops: tuple[str, ...],
    correl_id: bytes,
    *,
    original_topic: str,
) -> dict[str, str | int | bool]:
    """Return the message properties that say what the RFH2 would say."""
    found: dict[str, str | int | bool] = {}
    for name, value in _mqtt_content(publication, properties, original_topic, correl_id).items():
        found[f"mqtt.{name}"] = value.value if isinstance(value, Typed) else value  # type: ignore[assignment]
    for name, text in properties.items():
        found[f"usr.{property_name(name)}"] = text
    if hops:
        found[HOPS_PROPERTY] = hops_text(hops)
    return found


def _mqtt_content(
    publication: Publication, properties: Mapping[str, str], original_topic: str, correl_id: bytes
) -> dict[str, Writable]:
    content = mqtt_content(publication.client_id or None, publication.qos, publication.message_id)
    if original_topic:
        content["topic"] = original_topic
    given = publication.correlation_data
    add_elements(
        content,
        correl_id,
        response_topic=publication.response_topic or None,
        content_type=publication.content_type or None,
        # A CorrelId that is not of Correlation Data, an empty element tells.
        correlation_data=given if given or correl_id != cmqc.MQCI_NONE else None,
        payload_format=publication.payload_format,
        user_property=publication.user_property and publication.user_property_with(properties),
    )
    return content

