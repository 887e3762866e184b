"""The MQSC script for a configuration: the objects that the bridge needs, its authorities, and its channel.

`deploy/mq/bridge.mqsc` is the script for the default configuration.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

import msgspec

from bridge.config.models import Configuration
from bridge.config.queue_manager import IbmQueueManagerConfig
from bridge.mq.administration import MODEL_QUEUE
from bridge.mq.ibm.requirements import (
    BASE_TOPIC,
    DEFAULT_DEAD_LETTER_QUEUE,
    MAX_MESSAGE_LENGTH,
    PROBE_CLIENT,
    REPLY_MODEL,
    QueueManagerAttributes,
    Requirements,
    grants,
    queue_manager_alias,
    requirements_of,
    set_authrec,
)
from bridge.security.privileged import NOBODY

#: Maximum length of a line in characters.
_WIDTH = 70
#: MAXUMSGS of a new queue manager.
_DEFAULT_UNCOMMITTED = 10_000
#: Placeholders for an address and a name, which the administrator replaces.
_ADDRESS, _PEER_NAME = "192.0.2.10", "CN=mqbridge"

_HEADER = """\
Objects and authorities that the MQTT bridge needs at its queue
manager, as mqbridge mqsc-script prints them.

IBM MQ:                  runmqsc QMGR < bridge.mqsc
Embedded queue manager:  the bridge runs bridge.mqsc at each start.
To see what is missing:  mqbridge check --connect bridge.yaml

Running the script again does not change objects that exist: DEFINE
answers AMQ8150E, "already exists", which is harmless. ALTER QMGR sets
its attributes each time under runmqsc. The embedded queue manager
keeps attributes that have a value already.

Each MQTT client is a remote queue manager to this one, named by its
client identifier. No objects are defined for clients: messages to
them resolve through the default transmission queue. The destination
of their subscriptions, SYSTEM.MQTT.PUBLICATION.QUEUE, is a name at
the client, and is not defined here."""

_COMMENTS = {
    "transmission queue": """\
Messages for MQTT clients. MAXDEPTH limits the backlog of all clients
that are away, together. SHARE, because several threads of the bridge
open it for input.
MSGDLVSQ stays at PRIORITY, as in IBM's own set-up. All publications
of MQTT clients have the priority of their topic (DEFPRTY), so their
order holds, as MQTT 3.1.1 section 4.6 demands. A message that an
application puts with a higher priority overtakes them.
MONQ makes the queue manager keep the age of the oldest message, which
the bridge reports in its metrics.""",
    "common transmission queue": """\
Messages that applications put to MQTT clients by their identifiers, on
the way by DEFXMITQ. The bridge of shard 0 forwards them to the queues
of the shards.""",
    "members queue": """\
The shards that have members of each shared subscription, one message
for each shard and subscription. Never clear this queue while clients
have shared subscriptions. All shards use it. SHARE is not needed.""",
    "state queue": """\
Session state that must survive a restart: in-flight identifiers and
exactly-once state. Never clear this queue while clients have messages
in doubt. SHARE, because each thread of the bridge opens it for input.""",
    "lock queue": """\
The active bridge opens this queue for exclusive input. A second
bridge stands by. No message is put to it.""",
    "state queue of exactly-once mappings": """\
Progress of mappings with "guarantee: exactly-once", one message for
each. Never clear this queue while such a mapping is enabled, or the
broker gets messages again. SHARE, because each mapping opens it for
input. Not needed without such mappings.""",
    "queue of messages set aside": """\
Dead letters that a mapping from the dead-letter queue could not
process. Not needed without such a mapping.""",
    "dead-letter queue": """\
Messages that could not be delivered. Most IBM MQ queue managers have
this queue.""",
}

_PIPELINES = """\
Pipelines need more, and these records do not contain it: INQ, GET and
BROWSE on the queues that they read, PUT on the queues that they write,
and SUB and RESUME (reading) or PUB (writing) on topics."""


def mqsc_script(
    configuration: Configuration,
    grantee: str = "GROUP('mqbridge')",
    user: str = "mqbridge",
    *,
    aliases: bool = False,
    existing: QueueManagerAttributes | None = None,
) -> str:
    """Return the script for a configuration.

    `grantee` gets the authorities of the bridge: PRINCIPAL('user') or GROUP('group'). `user` is the user to which the channel
    maps a bridge without a password. With `aliases`, queue manager aliases route messages to clients, and DEFXMITQ does not
    change. The script omits attributes that the queue manager already has according to `existing`.
    """
    requirements = requirements_of(configuration)
    settings = configuration.queue_manager
    if not isinstance(settings, IbmQueueManagerConfig):
        # Mappings may be added later, and the embedded queue manager runs the same script then.
        identities = tuple("" if identity == NOBODY else identity for identity in requirements.identities)
        requirements = msgspec.structs.replace(
            requirements,
            dead_letter_queue=DEFAULT_DEAD_LETTER_QUEUE,
            mapping_state=True,
            set_aside=True,
            identities=identities,
        )
    elif configuration.pipelines:
        requirements = msgspec.structs.replace(requirements, mapping_state=True)
    parts = [
        _comment(_HEADER),
        *_objects(requirements, existing or QueueManagerAttributes()),
        *_route(requirements, grantee, aliases=aliases, displays=isinstance(settings, IbmQueueManagerConfig)),
        *_authorities(requirements, grantee),
        *([_comment(_PIPELINES)] if configuration.pipelines else []),
        *_channel(settings if isinstance(settings, IbmQueueManagerConfig) else None, user),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _objects(requirements: Requirements, existing: QueueManagerAttributes) -> Iterator[str]:
    yield _comment(
        "Headers (MQXQH, RFH2) are added to the payload, so messages longer\n"
        "than IBM MQ's default of 4 MiB must be allowed. The embedded queue\n"
        "manager takes its limit from max_message_length of the\nconfiguration file."
    ) + _command("ALTER QMGR", [f"MAXMSGL({MAX_MESSAGE_LENGTH})"])
    if requirements.uncommitted > max(_DEFAULT_UNCOMMITTED, existing.uncommitted):
        text = "One unit of work of the bridge may have this many messages."
        yield _comment(text) + _command("ALTER QMGR", [f"MAXUMSGS({requirements.uncommitted})"])
    for queue in requirements.queues(""):
        words = ["NOREPLACE", f"DESCR('{queue.description}')", *queue.words]
        yield _comment(_COMMENTS[queue.purpose]) + _command(f"DEFINE QLOCAL('{queue.name}')", words)
    yield _comment(
        "The bridge creates queues of this model for the replies to commands. A\n"
        "list of subscriptions is one message for each of them, so the 5,000\n"
        "messages of SYSTEM.DEFAULT.MODEL.QUEUE are not enough."
    ) + _command(
        f"DEFINE QMODEL('{MODEL_QUEUE}')",
        [
            "NOREPLACE",
            "DESCR('Replies to commands of the bridge')",
            *REPLY_MODEL,
        ],
    )
    if not existing.dead_letter_queue:
        text = "Leave this out if your queue manager has a dead-letter queue."
        yield _comment(text) + _command("ALTER QMGR", [f"DEADQ('{requirements.dead_letter_queue}')"])


def _route(requirements: Requirements, grantee: str, *, aliases: bool, displays: bool) -> Iterator[str]:
    """Yield the commands with which client identifiers resolve. With `displays`, the script displays the former DEFXMITQ."""
    queue = requirements.transmission_queue
    if requirements.is_shard:
        yield _comment(
            "Subscriptions of a shard name its transmission queue, and need neither\n"
            "DEFXMITQ nor aliases. Messages that applications put to a client by its\n"
            "identifier reach the common transmission queue by DEFXMITQ, and shard 0\n"
            "forwards them. If no other queue managers are reached by DEFXMITQ:\n\n"
            + _command("ALTER QMGR", [f"DEFXMITQ('{requirements.bridge_queues.common_transmission}')"])
            + "\nOtherwise each client needs an alias. For a client dev1 of this shard:\n\n"
            + _command("DEFINE QREMOTE('dev1')", ["RQMNAME('dev1')", f"XMITQ('{queue}')"])
        )
        return
    if not aliases:
        yield (
            _comment(
                "DEFXMITQ makes client identifiers resolve. If the queue manager has\n"
                "another default transmission queue already, DO NOT RUN THIS COMMAND:\n"
                "messages that the other queue routes would go to MQTT clients. Use\n"
                "mqbridge mqsc-script --aliases instead, or give the queue managers\n"
                "behind that queue transmission queues of their names."
            )
            + ("DISPLAY QMGR DEFXMITQ\n" if displays else "")
            + _command("ALTER QMGR", [f"DEFXMITQ('{queue}')"])
        )
        return
    yield _comment(
        "Queue manager aliases make client identifiers resolve. DEFXMITQ is not\n"
        "changed. Each client needs an alias of its identifier, also each\n"
        "shared subscription (SHARE. and 32 digits; the log has the name).\n"
        "Clients without an identifier of their own cannot subscribe. For a\n"
        "client dev1:\n\n" + _command("DEFINE QREMOTE('dev1')", ["RQMNAME('dev1')", f"XMITQ('{queue}')"])
    )
    define, *words = queue_manager_alias(PROBE_CLIENT, queue).rsplit(" ", 2)
    yield (
        _comment("mqbridge check uses this alias to test authorities, and finds by it that\nclients have aliases.")
        + _command(define, ["NOREPLACE", *words])
        + "\n"
        + _command("SET AUTHREC", set_authrec("QUEUE", PROBE_CLIENT, grantee, "DSP").split()[2:])
    )


def _authorities(requirements: Requirements, grantee: str) -> Iterator[str]:
    """Yield a SET AUTHREC for each user and object, with the purpose of each authority."""
    yield _comment(
        "Authorities. The bridge needs these and no others. It does not need to\n"
        "be a member of mqm. The group or user must exist in the operating\n"
        "system of the queue manager. (The embedded queue manager checks\n"
        "authorities only with authorities: enforced.)"
    )
    for grant in grants(requirements.authorities("")):
        name = grant.first.name
        lines = [f"{authority.word:<8} {authority.purpose}" for authority in grant.authorities]
        comment = _comment("\n".join(_wrapped(line) for line in lines))
        if name in {queue.transmission_queue for queue in requirements.mapping_queues}:
            comment += _comment(
                f"{name} is the transmission queue to the queue manager of that name.\n"
                "If there is none, name the default transmission queue instead."
            )
        yield comment + _command("SET AUTHREC", grant.command(grantee).removeprefix("SET AUTHREC ").split())
    if requirements.password_channels:
        yield _comment(
            f"Clients of channel {', '.join(requirements.password_channels)} log in with a user and password\n"
            "of the queue manager. Each of these users needs CONNECT, and the\n"
            "CHLAUTH records below must allow it. For a group devices:\n\n"
            "SET AUTHREC OBJTYPE(QMGR) GROUP('devices') AUTHADD(CONNECT)"
        )
    for mapping, template, as_publisher in requirements.mapping_templates:
        words = "SETID" if as_publisher else "PUT,SETID"
        clients = "\n\nIt puts as the users of its MQTT clients. Each of them needs PUT."
        yield _comment(
            f"Mapping {mapping} puts to queues by the template {template}.\n"
            f"Grant {' and '.join(words.split(','))} on each of them, or on a generic profile:\n\n"
            f"SET AUTHREC PROFILE('GENERIC.**') OBJTYPE(QUEUE) +\n       {grantee} AUTHADD({words})"
            f"{clients if as_publisher else ''}"
        )
    yield _comment(
        f"PUB and SUB on {BASE_TOPIC} cover the whole topic tree. To limit\n"
        "clients, give each group of them topic objects and users of their own.\n"
        "A client's user needs PUT on the transmission queue and PUB or SUB on\n"
        f"its topics. The bridge needs SUB and RESUME on {BASE_TOPIC},\n"
        "or on the topic objects of all clients: the bridge itself removes\n"
        "subscriptions when a client unsubscribes. For a group sensors:\n\n"
        "DEFINE TOPIC('SENSORS') TOPICSTR('sensors') NOREPLACE\n"
        "SET AUTHREC PROFILE('SENSORS') OBJTYPE(TOPIC) +\n"
        "       GROUP('sensors') AUTHADD(PUB,SUB)\n"
        f"SET AUTHREC PROFILE('{requirements.transmission_queue}') OBJTYPE(QUEUE) +\n"
        "       GROUP('sensors') AUTHADD(PUT)"
    )


def _channel(settings: IbmQueueManagerConfig | None, user: str) -> Iterator[str]:
    """Yield the channel of a bridge that connects as a client, as comments if the configuration has no channel."""
    channel = settings.channel if settings is not None else None
    tls = settings.tls if settings is not None else None
    has_password = settings is not None and (settings.user is not None or settings.token_file is not None)
    asks_certificate = settings is None or (tls is not None and tls.certificate_label is not None) or not has_password
    name = channel or "MQTT.BRIDGE"
    threads = settings.publishers + settings.removers if settings is not None else 36
    yield _comment(
        "The channel of a bridge that connects as a client (IBM MQ only). Both\n"
        "sides close a connection that is half open, for example one that a\n"
        "firewall dropped, after twice HBINT. With the default, 300, that takes\n"
        "ten minutes. MCAUSER('*NOACCESS') is no user: only the records below\n"
        "give a connection one.\n"
        f"The bridge has {threads + 5} connections, one more for each mapping, and one\n"
        "more for every 200 subscriptions of clean sessions (MAXHANDS less 56).\n"
        "If you set MAXINST and MAXINSTC, allow that for two bridges and a few\n"
        "more. MaxChannels in qm.ini must allow all channels together."
    )
    cipher = (tls.cipher_spec if tls is not None else None) or "ANY_TLS12_OR_HIGHER"
    commands = [
        _command(
            f"DEFINE CHANNEL('{name}')",
            [
                "CHLTYPE(SVRCONN)",
                "TRPTYPE(TCP)",
                "NOREPLACE",
                "DESCR('MQTT bridge')",
                "MCAUSER('*NOACCESS')",
                f"MAXMSGL({MAX_MESSAGE_LENGTH})",
                "SHARECNV(1)",
                "HBINT(10)",
                f"SSLCIPH({cipher})" if settings is None or tls is not None or channel is None else "SSLCIPH(' ')",
                f"SSLCAUTH({'REQUIRED' if asks_certificate else 'OPTIONAL'})",
            ],
        ),
        _comment("Block every connection that no other record allows.")
        + _command(
            f"SET CHLAUTH('{name}')", ["TYPE(ADDRESSMAP)", "ADDRESS('*')", "USERSRC(NOACCESS)", "ACTION(REPLACE)"]
        ),
    ]
    if has_password:
        commands.append(
            _comment(
                f"Allow the bridge from its address, with a password or token.\nReplace {_ADDRESS}. The user's"
                " authorities count if the queue\nmanager's AUTHINFO (CONNAUTH) has ADOPTCTX(YES)."
            )
            + _command(
                f"SET CHLAUTH('{name}')",
                [
                    "TYPE(ADDRESSMAP)",
                    f"ADDRESS('{_ADDRESS}')",
                    "USERSRC(CHANNEL)",
                    "CHCKCLNT(REQUIRED)",
                    "ACTION(REPLACE)",
                ],
            )
        )
    else:
        commands.append(
            _comment(
                "Allow the bridge by the subject of its certificate, as this user.\n"
                f"Replace {_PEER_NAME} by that subject (openssl x509 -subject)."
            )
            + _command(
                f"SET CHLAUTH('{name}')",
                [
                    "TYPE(SSLPEERMAP)",
                    f"SSLPEER('{_PEER_NAME}')",
                    "USERSRC(MAP)",
                    f"MCAUSER('{user}')",
                    "ACTION(REPLACE)",
                ],
            )
        )
    if channel is None:
        commands = [_comment(command.replace("* ", "")) for command in commands]
    yield from commands


def _comment(text: str) -> str:
    return "".join(f"* {line}".rstrip() + "\n" for line in text.splitlines())


def _wrapped(line: str) -> str:
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * 9)


def _command(start: str, words: Iterable[str]) -> str:
    """Return a command in lines of at most _WIDTH characters."""
    lines, current = [], start
    for word in words:
        if len(current) + len(word) + 3 > _WIDTH:
            lines.append(current + " +")
            current = " " * 6
        current += f" {word}"
    return "\n".join([*lines, current])
