"""Why a user may or may not publish to a topic: the rules in the order in which the bridge applies them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from bridge.administration.answers import AccessDecision, AccessRule
from bridge.administration.protocol import Invalid, NotFound
from bridge.administration.requests import ExplainAccess
from bridge.config.channel import ChannelConfig
from bridge.mq.mqi import Connection
from bridge.mq.mqsc import CommandRefused
from bridge.mq.object_changes import topic_objects
from bridge.mqtt.topics import is_wildcard, topic_string_error
from bridge.security.channel_authentication import Connecting
from bridge.service.administration.parts import Parts
from bridge.telemetry.identity import TopicAccess, too_long_for_mq, user_identifier


async def explain_access(parts: Parts, request: ExplainAccess) -> AccessDecision:
    check_topic(request.topic)
    config = next(
        (candidate for candidate in parts.host.telemetry_channels.channels if candidate.name == request.channel), None
    )
    if config is None:
        raise NotFound(f"there is no channel {request.channel}")
    decision = AccessDecision(permitted=True, mq_user="", rules=[])
    for rule in _rules_of_channel(parts, config, request, decision):
        if not _applies(decision, rule):
            return decision
    user = decision.mq_user

    def work(connection: Connection) -> tuple[AccessRule | None, AccessRule]:
        permits, text = parts.host.explain_publishing(connection, user, request.topic)
        return topic_object_rule(connection, request.topic), AccessRule("authority", permits, text)

    for next_rule in await parts.queue_manager_connection.run(work):
        if next_rule is not None and not _applies(decision, next_rule):
            break
    return decision


def _applies(decision: AccessDecision, rule: AccessRule) -> bool:
    """Add a rule to a decision, and return whether it permits the publication."""
    decision.rules.append(rule)
    decision.permitted = rule.permits
    return rule.permits


def check_topic(topic: str) -> None:
    """Raise Invalid unless a topic can be published to."""
    why = topic_string_error(topic) if topic else "a topic has at least one character"
    if why is None and is_wildcard(topic):
        why = "wildcards are for subscriptions"
    if why is not None:
        raise Invalid(f"topic {topic[:100]!r} is not valid: {why}")


def _rules_of_channel(
    parts: Parts, config: ChannelConfig, request: ExplainAccess, decision: AccessDecision
) -> Iterator[AccessRule]:
    """Yield the rules of channel authentication records and of the channel, and set the MQ user of the decision."""
    own = user_identifier(
        request.client_id, request.user or None, mcauser=config.mcauser, use_client_id=config.use_client_id
    ).decode("utf-8", "replace")
    connecting = Connecting(config.name, request.address, request.user)
    verdict = parts.host.channel_authentication.at_work.verdict(connecting, own)
    if verdict.refusal:
        yield AccessRule(
            "channel authentication", False, f"channel {config.name} rejects the client: {verdict.refusal}"
        )
        return
    for warning in verdict.warnings:
        yield AccessRule("channel authentication", True, f"a record with warn: {warning}")
    decision.mq_user = own if verdict.mcauser is None else verdict.mcauser
    if verdict.mcauser is not None:
        text = f"a record maps the client to MQ user {decision.mq_user!r}"
    elif why := too_long_for_mq(
        request.client_id, request.user, mcauser=config.mcauser, use_client_id=config.use_client_id
    ):
        yield AccessRule("channel", False, why)
        return
    else:
        text = f"the client acts as MQ user {decision.mq_user!r}, as channel {config.name} specifies"
    yield AccessRule("channel authentication" if verdict.mcauser is not None else "channel", True, text)
    if config.publish_topics is None:
        yield AccessRule(
            "publish_topics", True, f"channel {config.name} has no publish_topics, so it permits all topics"
        )
        return
    permits = TopicAccess(config.publish_topics, None, request.client_id, request.user).may_publish(request.topic)
    listed = ", ".join(config.publish_topics) or "none"
    verb = "permits" if permits else "does not permit"
    yield AccessRule(
        "publish_topics", permits, f"channel {config.name} {verb} the topic: its publish_topics are {listed}"
    )


def topic_object_rule(connection: Connection, topic: str) -> AccessRule | None:
    """Return the rule of the nearest topic object that inhibits or permits publications, or None if there is none."""
    with suppress(CommandRefused):
        levels = topic.split("/")
        by_string = {topic_object.topic_string: topic_object for topic_object in topic_objects(connection)}
        for length in range(len(levels), -1, -1):
            topic_object = by_string.get("/".join(levels[:length]))
            if topic_object is not None and topic_object.publications in ("ENABLED", "DISABLED"):
                permits = topic_object.publications == "ENABLED"
                return AccessRule(
                    "topic object", permits, f"topic object {topic_object.name} has PUB({topic_object.publications})"
                )
    return None
