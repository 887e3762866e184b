"""Attributes of queue manager objects: MQSC keywords, what they may be, and their defaults.

Source: IBM MQ documentation, "MQSC commands reference" (DEFINE QLOCAL, QALIAS, QREMOTE, TOPIC, SUB; ALTER QMGR).
Values are held as MQSC shows them: numbers as int, all else as text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

Value = str | int


class AttributeRefused(ValueError):
    """A keyword or value that an object does not take; the message says what was expected."""


@dataclass(frozen=True)
class Choice:
    """One of a few words; the first is the default unless another is named."""

    words: tuple[str, ...]
    default: str
    #: other spellings that MQSC accepts for a word
    synonyms: tuple[tuple[str, str], ...] = ()

    def read(self, keyword: str, text: str) -> Value:
        word = dict(self.synonyms).get(text.upper(), text.upper())
        if word not in self.words:
            raise AttributeRefused(f"{keyword} is one of {', '.join(self.words)}, not {text!r}")
        return word


@dataclass(frozen=True)
class Number:
    """A whole number in a range; some take a word as well."""

    low: int
    high: int
    default: Value
    words: tuple[str, ...] = ()

    def read(self, keyword: str, text: str) -> Value:
        if text.upper() in self.words:
            return text.upper()
        try:
            number = int(text)
        except ValueError:
            number = self.low - 1
        if not self.low <= number <= self.high:
            also = f" or {' or '.join(self.words)}" if self.words else ""
            raise AttributeRefused(f"{keyword} is a number from {self.low} to {self.high}{also}, not {text!r}")
        return number


@dataclass(frozen=True)
class Text:
    """Text up to a number of characters; `name` holds it to the characters of MQ object names."""

    length: int
    default: str = ""
    name: bool = False

    def read(self, keyword: str, text: str) -> Value:
        text = text.rstrip(" ")
        if len(text) > self.length:
            raise AttributeRefused(f"{keyword} has at most {self.length} characters, not {len(text)}")
        if self.name and (wrong := invalid_name_character(text)):
            raise AttributeRefused(f"{keyword} holds {wrong!r}, which no MQ object name has")
        return text


@dataclass(frozen=True)
class Names:
    """Names of objects, held as MQSC shows them: with commas, which no name has, between them."""

    default: str = ""

    def read(self, keyword: str, text: str) -> Value:
        names = [name.strip(" ") for name in text.split(",")] if text.strip(" ") else []
        if len(names) > _MAX_NAMES:
            raise AttributeRefused(f"{keyword} has at most {_MAX_NAMES} names, not {len(names)}")
        for name in names:
            _OBJECT_NAME.read(keyword, name)
        return ",".join(names)


@dataclass(frozen=True)
class Words:
    """Some of a few words, each once, held with commas between them in the order of `words`."""

    words: tuple[str, ...]
    default: str

    def read(self, keyword: str, text: str) -> Value:
        given = [word.strip(" ").upper() for word in text.split(",")]
        if not set(given) <= set(self.words) or len(set(given)) < len(given):
            raise AttributeRefused(f"{keyword} is one or more of {', '.join(self.words)}, not {text!r}")
        return ",".join(word for word in self.words if word in given)


Attribute = Choice | Number | Text | Names | Words

#: Characters of MQ object names ("Rules for naming IBM MQ objects").
NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/%")
MQ_OBJECT_NAME_LENGTH = 48


def invalid_name_character(name: str) -> str | None:
    """Return the first character of `name` that no MQ object name has, or None."""
    return next((character for character in name if character not in NAME_CHARACTERS), None)


_OBJECT_NAME = Text(MQ_OBJECT_NAME_LENGTH, name=True)
_MAX_NAMES = 256
_ENABLED = Choice(("ENABLED", "DISABLED"), "ENABLED")
_YES_NO = Choice(("YES", "NO"), "NO")
_DEFPSIST = Choice(("NO", "YES"), "NO")
_NAME = Text(48, name=True)
_DESCR = Text(64)
_ENABLED_ASPARENT = Choice(("ASPARENT", "ENABLED", "DISABLED"), "ASPARENT")
_DELIVERY = Choice(("ASPARENT", "ALL", "ALLAVAIL", "ALLDUR"), "ASPARENT")
_NUMBER = 999_999_999
_SCOPE = Choice(("ASPARENT", "ALL", "QMGR"), "ASPARENT")
_OFF_ON = Choice(("OFF", "ON"), "OFF")
_NO_EVENT = Choice(("DISABLED", "ENABLED"), "DISABLED")
_MONITORING = Choice(("QMGR", "OFF", "ON"), "QMGR")
_PROPCTL = Choice(("COMPAT", "ALL", "FORCE", "NONE", "V6COMPAT"), "COMPAT")
#: Of every kind of queue. Bindings and responses are what the one queue manager there is makes of them.
_ANY_QUEUE: dict[str, Attribute] = {
    "DEFBIND": Choice(("OPEN", "NOTFIXED", "GROUP"), "OPEN"),
    "DEFPRESP": Choice(("SYNC", "ASYNC"), "SYNC"),
    "SCOPE": Choice(("QMGR",), "QMGR"),
    "CUSTOM": Text(128),
}
#: What is kept and shown, as programs that define queues set it; nothing follows from it, for the embedded queue
#: manager raises no events, starts no programs and gathers no statistics.
_WITHOUT_EFFECT: dict[str, Attribute] = {
    "ACCTQ": _MONITORING,
    "DEFREADA": Choice(("NO", "YES", "DISABLED"), "NO"),
    "DISTL": Choice(("NO", "YES"), "NO"),
    "HARDENBO": Choice(("NO", "YES"), "NO"),
    "INITQ": _NAME,
    "MONQ": Choice(("QMGR", "OFF", "LOW", "MEDIUM", "HIGH"), "QMGR"),
    "PROCESS": _NAME,
    "QDEPTHHI": Number(0, 100, 80),
    "QDEPTHLO": Number(0, 100, 20),
    "QDPHIEV": _NO_EVENT,
    "QDPLOEV": _NO_EVENT,
    "QDPMAXEV": _ENABLED,
    "QSVCIEV": Choice(("NONE", "HIGH", "OK"), "NONE"),
    "QSVCINT": Number(0, _NUMBER, _NUMBER),
    "RETINTVL": Number(0, _NUMBER, _NUMBER),
    "STATQ": _MONITORING,
    "TRIGDATA": Text(64),
    "TRIGDPTH": Number(1, _NUMBER, 1),
    "TRIGMPRI": Number(0, 9, 0),
    "TRIGTYPE": Choice(("FIRST", "EVERY", "DEPTH", "NONE"), "FIRST"),
}

ATTRIBUTES: dict[str, dict[str, Attribute]] = {
    "QMGR": {
        "DESCR": _DESCR,
        "DEADQ": _NAME,
        "DEFXMITQ": _NAME,
        "MAXMSGL": Number(32_768, 104_857_600, 104_857_600),
        "MAXHANDS": Number(0, _NUMBER, 256),
        "MAXUMSGS": Number(1, _NUMBER, 10_000),
        "CCSID": Number(1, 65_535, 1208),
        "ACCTMQI": _OFF_ON,
        "ACCTQ": Choice(("OFF", "ON", "NONE"), "OFF"),
        "AUTHOREV": _NO_EVENT,
        "CHLEV": Choice(("DISABLED", "ENABLED", "EXCEPTION"), "DISABLED"),
        "CMDEV": Choice(("DISABLED", "ENABLED", "NODISPLAY"), "DISABLED"),
        "CONFIGEV": _NO_EVENT,
        "CUSTOM": Text(128),
        "INHIBTEV": _NO_EVENT,
        "LOCALEV": _NO_EVENT,
        "MARKINT": Number(0, _NUMBER, 5_000, ("NOLIMIT",)),
        "MAXPROPL": Number(0, 104_857_600, "NOLIMIT", ("NOLIMIT",)),
        "MONQ": Choice(("OFF", "NONE", "LOW", "MEDIUM", "HIGH"), "OFF"),
        "PERFMEV": _NO_EVENT,
        "REMOTEEV": _NO_EVENT,
        "STATMQI": _OFF_ON,
        "STATQ": Choice(("OFF", "ON", "NONE"), "OFF"),
        "STRSTPEV": _ENABLED,
        "TREELIFE": Number(0, 604_000, 1_800),
        "TRIGINT": Number(0, _NUMBER, _NUMBER),
    },
    "QLOCAL": {
        "DESCR": _DESCR,
        "PUT": _ENABLED,
        "GET": _ENABLED,
        "DEFPRTY": Number(0, 9, 0),
        "DEFPSIST": _DEFPSIST,
        "MAXDEPTH": Number(0, _NUMBER, 5_000),
        "MAXMSGL": Number(0, 104_857_600, 4_194_304),
        "MSGDLVSQ": Choice(("PRIORITY", "FIFO"), "PRIORITY"),
        "USAGE": Choice(("NORMAL", "XMITQ"), "NORMAL"),
        "SHARE": Choice(("YES", "NO"), "YES"),
        "DEFSOPT": Choice(("SHARED", "EXCL"), "SHARED"),
        "BOTHRESH": Number(0, _NUMBER, 0),
        "BOQNAME": _NAME,
        "PROPCTL": _PROPCTL,
        "TRIGGER": Choice(("NO", "YES"), "NO"),
        "NPMCLASS": Choice(("NORMAL", "HIGH"), "NORMAL"),
        **_ANY_QUEUE,
        **_WITHOUT_EFFECT,
    },
    "QALIAS": {
        "DESCR": _DESCR,
        "PUT": _ENABLED,
        "GET": _ENABLED,
        "DEFPRTY": Number(0, 9, 0),
        "DEFPSIST": _DEFPSIST,
        "TARGET": _NAME,
        "TARGTYPE": Choice(("QUEUE", "TOPIC"), "QUEUE"),
        "PROPCTL": _PROPCTL,
        "DEFREADA": Choice(("NO", "YES", "DISABLED"), "NO"),
        **_ANY_QUEUE,
    },
    "QREMOTE": {
        "DESCR": _DESCR,
        "PUT": _ENABLED,
        "DEFPRTY": Number(0, 9, 0),
        "DEFPSIST": _DEFPSIST,
        "RNAME": Text(48),
        "RQMNAME": Text(48),
        "XMITQ": _NAME,
        **_ANY_QUEUE,
    },
    "NAMELIST": {"DESCR": _DESCR, "NAMES": Names()},
    #: telemetry channels, CHLTYPE(MQTT): there are no others
    "CHANNEL": {
        "BACKLOG": Number(1, 65_535, 4_096),
        "DESCR": _DESCR,
        "LOCLADDR": Text(48),
        "MCAUSER": Text(12),
        "PORT": Number(0, 65_535, 1_883),
        "PROTOCOL": Words(("MQTTV5", "MQTTV311", "MQTTV3", "HTTP"), "MQTTV5,MQTTV311,MQTTV3"),
        "SSLCAUTH": Choice(("NEVER", "OPTIONAL", "REQUIRED"), "NEVER"),
        "SSLCIPH": Text(1_024),
        "SSLKEYP": Text(256),
        "SSLKEYR": Text(256),
        "TRPTYPE": Choice(("TCP",), "TCP"),
        "USECLTID": Choice(("NO", "YES"), "NO"),
    },
    #: server-connection channels, CHLTYPE(SVRCONN), of programs in C; HBINT and MCAUSER have no effect
    "SVRCONN": {
        "DESCR": _DESCR,
        "HBINT": Number(0, 999_999, 300),
        "MAXINST": Number(0, _NUMBER, _NUMBER),
        "MAXINSTC": Number(0, _NUMBER, _NUMBER),
        "MAXMSGL": Number(0, 104_857_600, 4_194_304),
        "MCAUSER": Text(64),
        "SHARECNV": Number(0, _NUMBER, 10),
        "SSLCAUTH": Choice(("REQUIRED", "OPTIONAL"), "REQUIRED"),
        "SSLCIPH": Text(32),
        "SSLPEER": Text(1_024),
        "TRPTYPE": Choice(("TCP",), "TCP"),
    },
    "TOPIC": {
        "DESCR": _DESCR,
        "TOPICSTR": Text(10_240),
        "PUB": _ENABLED_ASPARENT,
        "SUB": _ENABLED_ASPARENT,
        "DEFPSIST": Choice(("ASPARENT", "NO", "YES"), "ASPARENT"),
        "DEFPRTY": Number(0, 9, "ASPARENT", ("ASPARENT",)),
        "DURSUB": Choice(("ASPARENT", "YES", "NO"), "ASPARENT"),
        "PMSGDLV": _DELIVERY,
        "NPMSGDLV": _DELIVERY,
        "USEDLQ": Choice(("ASPARENT", "YES", "NO"), "ASPARENT"),
        "DEFPRESP": Choice(("ASPARENT", "SYNC", "ASYNC"), "ASPARENT"),
        "PUBSCOPE": _SCOPE,
        "SUBSCOPE": _SCOPE,
        "MDURMDL": _NAME,
        "MNDURMDL": _NAME,
        "WILDCARD": Choice(("PASSTHRU", "BLOCK"), "PASSTHRU"),
        "CUSTOM": Text(128),
    },
    "SUB": {
        "TOPICSTR": Text(10_240),
        "TOPICOBJ": _NAME,
        "DEST": Text(48),
        "DESTQMGR": Text(48),
        "DESTCORL": Text(48),
        "USERDATA": Text(10_240),
        "SUBLEVEL": Number(0, 9, 1),
        "EXPIRY": Number(0, _NUMBER, "UNLIMITED", ("UNLIMITED",)),
        "WSCHEMA": Choice(("TOPIC", "CHAR"), "TOPIC"),
        "SUBUSER": Text(12),
    },
}

#: A model queue has what the queues made of it will have, and says of which kind they are.
ATTRIBUTES["QMODEL"] = ATTRIBUTES["QLOCAL"] | {"DEFTYPE": Choice(("TEMPDYN", "PERMDYN"), "TEMPDYN")}

#: Model queues that every queue manager has.
MODEL_QUEUES: dict[str, dict[str, Value]] = {
    "SYSTEM.DEFAULT.MODEL.QUEUE": {},
    "SYSTEM.MQSC.REPLY.QUEUE": {"MAXMSGL": 32_762, "MAXDEPTH": 3_000},
    "SYSTEM.MQEXPLORER.REPLY.MODEL": {"MAXMSGL": 4_194_304},
    "SYSTEM.JMS.TEMPQ.MODEL": {},
    "SYSTEM.DURABLE.MODEL.QUEUE": {"DEFTYPE": "PERMDYN"},
    "SYSTEM.NDURABLE.MODEL.QUEUE": {},
}

#: Server-connection channels that every queue manager has.
SERVER_CHANNELS = ("SYSTEM.DEF.SVRCONN", "SYSTEM.AUTO.SVRCONN")

#: Namelists that every queue manager has.
NAMELISTS: dict[str, dict[str, Value]] = {"SYSTEM.DEFAULT.NAMELIST": {}}

#: Keywords that MQSC knows under two names.
SYNONYMS = {
    "DESCRIPTION": "DESCR",
    "TARGQ": "TARGET",
    "TOPICSTRING": "TOPICSTR",
    "DESTINATION": "DEST",
    "SUBNAME": "SUB",
}

#: Keywords without a value that stand for a keyword with one.
FLAGS = {
    "SHARE": ("SHARE", "YES"),
    "NOSHARE": ("SHARE", "NO"),
    "TRIGGER": ("TRIGGER", "YES"),
    "NOTRIGGER": ("TRIGGER", "NO"),
    "HARDENBO": ("HARDENBO", "YES"),
    "NOHARDENBO": ("HARDENBO", "NO"),
}

#: What SYSTEM.BASE.TOPIC says where no administrative topic object says otherwise.
BASE_TOPIC: dict[str, Value] = {
    "PUB": "ENABLED",
    "SUB": "ENABLED",
    "DEFPSIST": "NO",
    "DEFPRTY": 0,
    "DURSUB": "YES",
    "PMSGDLV": "ALLDUR",
    "NPMSGDLV": "ALLAVAIL",
    "USEDLQ": "YES",
    "DEFPRESP": "SYNC",
    "PUBSCOPE": "ALL",
    "SUBSCOPE": "ALL",
}


#: When an object was made and altered last; nobody sets them.
STAMPS = ("CRDATE", "CRTIME", "ALTDATE", "ALTTIME")


def stamps(seconds: float) -> dict[str, Value]:
    """Return the STAMPS of an object made at a time, in seconds since the epoch."""
    made = time.localtime(seconds)
    date, clock = time.strftime("%Y-%m-%d", made), time.strftime("%H.%M.%S", made)
    return {"CRDATE": date, "CRTIME": clock, "ALTDATE": date, "ALTTIME": clock}


def defaults(kind: str) -> dict[str, Value]:
    """Return the attributes of a new object of a kind (QLOCAL, TOPIC …)."""
    return {keyword: attribute.default for keyword, attribute in ATTRIBUTES[kind].items()}


def read(kind: str, keyword: str, text: str) -> Value:
    """Return the value of an attribute from its MQSC text. Raises AttributeRefused."""
    attribute = ATTRIBUTES[kind].get(keyword)
    if attribute is None:
        raise AttributeRefused(f"{keyword} is no attribute of {kind} that this queue manager has")
    return attribute.read(keyword, text)
