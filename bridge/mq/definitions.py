"""All definitions of an embedded queue manager as MQSC commands, like dmpmqcfg of IBM MQ."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bridge.mq.embedded.attributes import ATTRIBUTES, Names, TextAttribute
from bridge.mq.mqi import Connection
from bridge.mq.mqsc import FLAGS

#: The kinds of channels in `bridge.mq.embedded.attributes.ATTRIBUTES`, if they differ from CHLTYPE.
_KIND = {"MQTT": "CHANNEL"}


def definitions(
    connection: Connection, channels: Collection[str], records: Collection[tuple[str, str]], *, everything: bool
) -> Iterator[str]:
    """Yield the MQSC commands that define all objects of an embedded queue manager. Raises MQError.

    `channels` and `records` (channel and type of channel authentication records) are left out, because the configuration file
    defines them. `everything` includes attributes with their default values.
    """
    for attributes in _shown(connection, "QMGR"):
        yield f"* Queue manager {attributes['QMNAME']}"
        yield _command("ALTER QMGR", "QMGR", attributes, everything)
    for noun in ("QLOCAL", "QALIAS", "QREMOTE", "QMODEL", "NAMELIST", "TOPIC"):
        head = "QUEUE" if noun.startswith("Q") else noun
        for attributes in _shown(connection, f"{noun}(*)"):
            if noun != "QLOCAL" or attributes.get("DEFTYPE") == "PREDEFINED":
                yield _command(f"DEFINE {noun}({_quoted(attributes[head])})", noun, attributes, everything)
    for kind in ("MQTT", "SVRCONN"):
        for attributes in _shown(connection, f"CHANNEL(*) CHLTYPE({kind})"):
            if attributes["CHANNEL"] not in channels:
                start = f"DEFINE CHANNEL({_quoted(attributes['CHANNEL'])}) CHLTYPE({kind})"
                yield _command(start, _KIND.get(kind, kind), attributes, everything)
    for attributes in _shown(connection, "SUB(*) SUBTYPE(ADMIN)"):
        yield _command(f"DEFINE SUB({_quoted(attributes['SUB'])})", "SUB", attributes, everything)
    for attributes in _shown(connection, "AUTHINFO(*)"):
        check, name = attributes["CHCKCLNT"], _quoted(attributes["AUTHINFO"])
        yield f"ALTER AUTHINFO({name}) AUTHTYPE({attributes['AUTHTYPE']}) CHCKCLNT({check})"
    for attributes in sorted(_shown(connection, "CHLAUTH(*)"), key=_fields):
        if (attributes["CHLAUTH"], attributes["TYPE"]) not in records:
            start = f"SET CHLAUTH({_quoted(attributes['CHLAUTH'])}) TYPE({attributes['TYPE']}) ACTION(REPLACE)"
            values = {
                name: value for name, value in attributes.items() if name not in ("CHLAUTH", "TYPE") and value != ""
            }
            yield _continued(start, [f"{name}({_listed(name, value)})" for name, value in values.items()])
    for attributes in sorted(_shown(connection, "AUTHREC"), key=_fields):
        if attributes["AUTHLIST"] != "NONE":
            profile = "" if attributes["OBJTYPE"] == "QMGR" else f" PROFILE({_quoted(attributes['PROFILE'])})"
            entity = f"{attributes['ENTTYPE']}({_quoted(attributes['ENTITY'])})"
            yield _continued(
                f"SET AUTHREC{profile} OBJTYPE({attributes['OBJTYPE']}) {entity}",
                [f"AUTHADD({attributes['AUTHLIST']})"],
            )


def _shown(connection: Connection, selection: str) -> list[dict[str, str | int]]:
    """Return the objects of a DISPLAY command with all attributes."""
    noun, _, rest = selection.partition(" ")
    every = "" if noun.startswith(("CHLAUTH", "AUTHREC")) else " ALL"
    return [
        attributes
        for response in connection.command(f"DISPLAY {noun} {rest}{every}")
        if response.ok
        for attributes in response.objects
    ]


def _fields(attributes: dict[str, str | int]) -> list[str]:
    """Return a sort key, so that the order in which records were set does not matter."""
    return [f"{name} {value}" for name, value in sorted(attributes.items())]


def _command(start: str, kind: str, attributes: dict[str, str | int], everything: bool) -> str:
    """Return the command that sets the attributes of an object."""
    words = {setting: keyword for keyword, setting in FLAGS.items()}
    parts = []
    for name, attribute in ATTRIBUTES[kind].items():
        value = attributes.get(name)
        if value is None or (name == "DEFTYPE" and kind == "QLOCAL") or (not everything and value == attribute.default):
            continue
        if (word := words.get((name, str(value)))) is not None:
            parts.append(word)
        elif isinstance(attribute, Names):
            parts.append(f"{name}({','.join(map(_quoted, filter(None, str(value).split(','))))})")
        else:
            parts.append(f"{name}({_quoted(value) if isinstance(attribute, TextAttribute) else value})")
    return _continued(start, [*parts, *(["REPLACE"] if start.startswith("DEFINE") else [])])


def _continued(start: str, parts: list[str]) -> str:
    return " +\n   ".join([start, *parts])


def _quoted(value: str | int) -> str:
    text = str(value).replace("'", "''")
    return f"'{text}'"


def _listed(name: str, value: str | int) -> str:
    return ",".join(map(_quoted, str(value).split(","))) if name in ("USERLIST", "ADDRLIST") else _quoted(value)
