"""Vectorized mappings: the mapping rules of the service, applied to record batches with `mapInArrow`.

    from mqbridge import to_messages

    messages = to_messages(publications, "orders", config="bridge.yaml")
    messages.write.format("mq").option("refused", "SYSTEM.DEAD.LETTER.QUEUE")…
    messages.where("refusal IS NOT NULL")          # rows that cannot be mapped, with the reason

The results are byte for byte the messages that the service produces, and are put in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from bridge.config.document import load
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rendered import queue_name, topic_name, topic_string
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.spark.mapping.messages import DESTINATION, TAKEN, Messages, StandardToMq
from bridge.spark.mapping.publications import TAKEN as MESSAGE_COLUMNS
from bridge.spark.mapping.publications import Publications, StandardToMqtt
from bridge.spark.options import OptionError
from bridge.telemetry.message import Destination, Unmappable

__all__ = ["to_messages", "to_publications"]

#: The profile that is no mapping of a configuration, but the integration tables.
STANDARD: Final = "standard"
#: A mapping by its name in a configuration, or itself; or STANDARD.
Profile = str | ToMqMapping | ToMqttMapping


def to_messages(
    frame: DataFrame,
    profile: Profile = STANDARD,
    *,
    config: str | Path | None = None,
    name: str | None = None,
    queue_manager: str | None = None,
    queue: str | None = None,
    topic: str | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Return the MQ messages of a frame of publications.

    The frame has columns of an MQTT envelope (`bridge.spark.schema.MQTT_COLUMNS`). `topic` and `payload` are required.
    Missing columns count as null. The column `user` is the publisher's identity (MQMD.UserIdentifier). The rows of an
    archive have these columns. User properties `mqbridge-clientId` and `mqbridge-hops` of other bridges are handled as in
    the service.

    `profile` is "standard" (integration tables 1 to 3), the name of a mapping in the configuration file `config`, or a
    mapping object. A mapping object requires `name` and `queue_manager`, which become part of the hop mark. With "standard",
    messages go to `queue` or `topic`. Without these arguments, they go to the queue in the column `queue` or, if there is no
    such column, to the topic of the publication.

    The result has the columns `queue` (and `queue_manager`) or `topic`, `md`, `headers`, `body`, `properties`, `retain`,
    `clear` and `kept_request`, all of which the source `mq` writes. It also has the column `refusal`, which is null if the
    row was mapped. A row that cannot be mapped appears as the service would dead-letter it, with the reason in `refusal`.
    The writer's option `refused` names the queue for such rows. Rows that a filter does not accept are omitted. The columns
    in `keep` are passed through. Drop them before you write.

    Raises OptionError, ConfigurationError, RuleError.
    """
    what = "to_messages"
    rule: ToMqRule | StandardToMq
    by_column = False
    if profile == STANDARD and config is None:
        _refuse(what, "with the profile standard", name=name, queue_manager=queue_manager)
        rule = StandardToMq(_destination(what, queue, topic))
        by_column = rule.destination is None and DESTINATION in frame.columns
    else:
        _refuse(what, "because the mapping specifies the destination", queue=queue, topic=topic)
        found = _mapping(what, profile, config, name, queue_manager)
        if not isinstance(found, ToMqRule):
            raise OptionError(f"{what}: mapping {found.name} publishes to MQTT; hint: use to_publications")
        rule = found
    types = dict(TAKEN) | ({DESTINATION: "string"} if by_column else {})
    _need(what, frame, ("topic", "payload", *keep))
    selected, kept = _selected(frame, types, keep)
    return _mapped(what, selected, Messages(rule, by_column=by_column, kept=kept))


def to_publications(
    frame: DataFrame,
    profile: Profile = STANDARD,
    *,
    config: str | Path | None = None,
    name: str | None = None,
    queue_manager: str | None = None,
    topic: str | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """Return the MQTT publications of a frame of messages.

    The frame has columns of an MQ envelope (`bridge.spark.schema.MQ_COLUMNS`). `body` is required. The
    columns have the same meaning as for the writer of the source `mq` (`bridge.spark.mq.rows`). `profile`, `config`, `name`,
    `queue_manager` and `keep` are as in `to_messages`. "standard" means integration tables 4 and 5, and publishes to `topic`
    or to the topic of the original publication.

    The result has the columns of an MQTT envelope that apply to a publication, and `refusal` as in `to_messages`.
    `properties` contains the user properties that a link would publish.

    Raises OptionError, ConfigurationError, RuleError.
    """
    what = "to_publications"
    rule: ToMqttRule | StandardToMqtt
    if profile == STANDARD and config is None:
        _refuse(what, "with the profile standard", name=name, queue_manager=queue_manager)
        rule = StandardToMqtt(None if topic is None else _checked(what, "topic", topic_name, topic))
    else:
        _refuse(what, "because the mapping specifies the topic", topic=topic)
        found = _mapping(what, profile, config, name, queue_manager)
        if not isinstance(found, ToMqttRule):
            raise OptionError(f"{what}: mapping {found.name} puts messages to MQ; hint: use to_messages")
        rule = found
    _need(what, frame, ("body", *keep))
    types: dict[str, str | None] = dict.fromkeys(MESSAGE_COLUMNS)
    selected, kept = _selected(frame, types | {"headers": "binary", "body": "binary"}, keep)
    return _mapped(what, selected, Publications(rule, kept=kept))


def _mapped(what: str, frame: DataFrame, function: Messages | Publications) -> DataFrame:
    names = function.schema.names
    if clash := sorted({name for name in names if names.count(name) > 1}):
        raise OptionError(f"{what}: keep: expected other names than those of the result, found {', '.join(clash)}")
    return frame.mapInArrow(function.__call__, from_arrow_schema(function.schema))


def _selected(frame: DataFrame, types: Mapping[str, str | None], keep: Sequence[str]) -> tuple[DataFrame, list[Any]]:
    """Return the columns that a mapping looks at, with those that are passed through; and the fields of the latter."""
    columns: list[Column] = []
    for column in frame.columns:
        type_ = types.get(column)
        if column in types:
            columns.append(f.col(f"`{column}`") if type_ is None else f.col(f"`{column}`").cast(type_).alias(column))
    passed = [f.col(f"`{column}`").alias(f"kept_{column}") for column in keep]
    kept = to_arrow_schema(StructType([frame.schema[column] for column in keep]), timezone="UTC")
    return frame.select(*columns, *passed), list(kept)


def _need(what: str, frame: DataFrame, columns: Sequence[str]) -> None:
    if missing := [column for column in columns if column not in frame.columns]:
        raise OptionError(f"{what}: the frame has no column {' or '.join(missing)} (it has {', '.join(frame.columns)})")


def _refuse(what: str, why: str, **given: str | None) -> None:
    for option, value in given.items():
        if value is not None:
            raise OptionError(f"{what}: {option}: expected no value, {why}, found {value!r}")


def _destination(what: str, queue: str | None, topic: str | None) -> Destination | None:
    if queue is not None:
        _refuse(what, "because queue is set", topic=topic)
        return Destination(_checked(what, "queue", queue_name, queue))
    return None if topic is None else Destination(_checked(what, "topic", topic_string, topic), True)


def _checked(what: str, option: str, check: Any, text: str) -> str:
    try:
        return str(check(text))
    except Unmappable as error:
        raise OptionError(f"{what}: {option}: {error}") from error


def _mapping(
    what: str, profile: Profile, config: str | Path | None, name: str | None, queue_manager: str | None
) -> ToMqRule | ToMqttRule:
    """Return the rule of a mapping."""
    if not isinstance(profile, str):
        if name is None or queue_manager is None:
            raise OptionError(f"{what}: name and queue_manager are required with a mapping object (for its hop mark)")
        return rule_of(name, profile, queue_manager)
    _refuse(what, "because the configuration file specifies it", name=name, queue_manager=queue_manager)
    if config is None:
        raise OptionError(f"{what}: config is needed, the configuration file that has the mapping {profile!r}")
    configuration = load(Path(config))
    if profile not in configuration.mappings:
        known = ", ".join(configuration.mappings) or "none"
        raise OptionError(f"{what}: {config} has no mapping {profile!r}; it has {known}")
    return rule_of(profile, configuration.mappings[profile], configuration.queue_manager.name)
