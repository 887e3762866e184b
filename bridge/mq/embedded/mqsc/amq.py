"""AMQ messages: what the queue manager answers to commands, under the numbers that IBM MQ gives its own answers.

Scripts look at the number, people read the text. Source: IBM MQ documentation, "AMQ8xxx: Administration"; the texts are
this queue manager's.
"""

from __future__ import annotations

TEXTS = {
    "AMQ8005I": "Queue manager {name} changed.",
    "AMQ8006I": "Queue {name} created.",
    "AMQ8007I": "Queue {name} deleted.",
    "AMQ8008I": "Queue {name} changed.",
    "AMQ8014I": "Channel {name} created.{hint}",
    "AMQ8015I": "Channel {name} deleted.",
    "AMQ8016I": "Channel {name} changed.",
    "AMQ8018I": "Start channel {name} accepted.{hint}",
    #: IBM MQ's number for STOP CHANNEL; PURGE CHANNEL, which stops too, answers with it here
    "AMQ8019I": "{verb} channel {name} accepted.",
    #: IBM MQ's number for CLEAR QLOCAL; here CLEAR TOPICSTR answers with it too
    "AMQ8022I": "{what} cleared.",
    "AMQ8094I": "Subscription {name} created.",
    "AMQ8095I": "Subscription {name} changed.",
    "AMQ8096I": "Display subscription details.",
    "AMQ8097I": "Subscription {name} deleted.",
    "AMQ8099I": "Display subscription status details.",
    #: refusals for which IBM MQ has many numbers; the text says which
    "AMQ8101E": "The command failed: {detail}.",
    "AMQ8143E": "Queue {name} is not empty: {detail}.",
    "AMQ8147E": "{kind} {name} not found.",
    "AMQ8148E": "{kind} {name} is in use: {detail}.",
    "AMQ8150E": "{kind} {name} already exists.",
    "AMQ8405I": "Syntax error at line {line}, column {column}{near}: {detail}.",
    "AMQ8408I": "Display queue manager details.",
    "AMQ8409I": "Display queue details.",
    "AMQ8414I": "Display Channel details.",
    "AMQ8415I": "Queue manager {name} is running.",
    "AMQ8417I": "Display Channel Status details.",
    "AMQ8420I": "Channel Status not found.",
    "AMQ8424E": "Error in the name {name!r}: {detail}.",
    "AMQ8450I": "Display queue status details.",
    "AMQ8469E": "Subscription {name} is in use: {detail}.",
    "AMQ8492W": "Display Channel Status details: of some clients only. One command looks at {looked_at}, and shows as many "
    "as MAXDEPTH of SYSTEM.MQSC.REPLY.QUEUE says; `mqbridge client list` has them all.",
    "AMQ8550I": "Display namelist details.",
    "AMQ8551I": "Namelist {name} changed.",
    "AMQ8552I": "Namelist {name} created.",
    "AMQ8553I": "Namelist {name} deleted.",
    "AMQ8560I": "Security cache refreshed.",
    "AMQ8566I": "Display authentication information details.",
    "AMQ8567I": "IBM MQ authentication information changed.{hint}",
    "AMQ8633I": "Display topic details.",
    "AMQ8690I": "Topic {name} created.",
    "AMQ8691I": "Topic {name} changed.",
    "AMQ8692I": "Topic {name} deleted.",
    "AMQ8754I": "Display topic status details.",
    "AMQ8862I": "Authority record set.{hint}",
    "AMQ8863I": "Authority record deleted.",
    "AMQ8864I": "Display authority record details.",
    "AMQ8871E": "{name} has no authority record for profile {profile}.",
    "AMQ8877I": "Channel authentication record set.{hint}",
    "AMQ8878I": "Display channel authentication record details.",
    "AMQ8883E": "Channel authentication record {name} of type {kind} already exists.",
    "AMQ8884E": "Channel authentication record {name} not found.",
    "AMQ9514E": "Channel {name} is in use: {detail}.",
    "AMQ9533W": "Channel {name} is not active: {detail}.",
}


def message(number: str, **inserts: object) -> str:
    """Return an AMQ message: `AMQ8006I: Queue APP.IN created.` for one."""
    return f"{number}: {TEXTS[number].format(**inserts)}"


class CommandRefused(Exception):
    """A command that is not executed; nothing has changed. Its text is the AMQ message to answer."""

    def __init__(self, number: str, *, reason: int = 0, **inserts: object) -> None:
        super().__init__(message(number, **inserts))
        self.number = number
        #: the reason code that PCF gives for it, where the number alone does not tell
        self.reason = reason
