"""Attributes of queue manager objects: MQSC keywords, valid values, defaults, and PCF selectors.

Source: IBM MQ documentation, "MQSC commands reference" (DEFINE QLOCAL, QALIAS, QREMOTE, TOPIC, SUB; ALTER QMGR). Values
are stored as displayed by MQSC: numbers as int, all others as text.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFBS, MQCFIN, MQCFST, PCFParameter, string_list

Value = str | int


class AttributeRefused(ValueError):
    """A keyword or value is invalid for an object. The message contains what was expected."""


@dataclass(frozen=True)
class Choice:
    """An attribute whose value is one of several words."""

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
    """An integer attribute with a range, possibly with words as additional values."""

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
    """A text attribute with a maximum length. `name` restricts it to the characters of MQ object names."""

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
    """A list of object names, stored as displayed by MQSC: separated by commas, which names do not contain."""

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
    """A set of words, stored in the order of `words` and separated by commas."""

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
    """Return the first character of `name` that is invalid in MQ object names, or None."""
    return next((character for character in name if character not in NAME_CHARACTERS), None)


_OBJECT_NAME = Text(MQ_OBJECT_NAME_LENGTH, name=True)
_MAX_NAMES = 256
_ENABLED = Choice(("ENABLED", "DISABLED"), "ENABLED")
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
#: Attributes of all kinds of queues.
_ANY_QUEUE: dict[str, Attribute] = {
    "DEFBIND": Choice(("OPEN", "NOTFIXED", "GROUP"), "OPEN"),
    "DEFPRESP": Choice(("SYNC", "ASYNC"), "SYNC"),
    "SCOPE": Choice(("QMGR",), "QMGR"),
    "CUSTOM": Text(128),
}
#: Attributes that are stored and displayed for compatibility but have no effect: the embedded queue manager has no events,
#: triggers or statistics.
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
        "MAXMSGL": Number(32_768, 104_857_600, 4_194_304),
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
    #: telemetry channels, CHLTYPE(MQTT)
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
    #: server-connection channels, CHLTYPE(SVRCONN), used by the tests' stand-in for IBM MQ, without HBINT and MCAUSER
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

#: A model queue has the attributes of its dynamic queues, and the type of these (DEFTYPE).
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

#: Synonyms of MQSC keywords.
SYNONYMS = {
    "DESCRIPTION": "DESCR",
    "TARGQ": "TARGET",
    "TOPICSTRING": "TOPICSTR",
    "DESTINATION": "DEST",
    "SUBNAME": "SUB",
}

#: Attributes of SYSTEM.BASE.TOPIC, the defaults for all topics.
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


#: Times of creation and last change, which commands cannot set.
STAMPS = ("CRDATE", "CRTIME", "ALTDATE", "ALTTIME")


def stamps(seconds: float) -> dict[str, Value]:
    """Return the STAMPS of an object created at a time, in seconds since the epoch."""
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


#: Length of a text attribute that is not padded.
VARIABLE = -1


@dataclass(frozen=True)
class Selector:
    """An attribute: its MQSC keyword and its PCF selector."""

    keyword: str
    number: int
    #: the numbers of MQSC words
    words: Mapping[str, int] = field(default_factory=dict)
    #: length in bytes of a text or byte string; VARIABLE; or 0 for an integer
    length: int = 0
    #: a byte string, which is hexadecimal in MQSC
    binary: bool = False
    #: the constant value of an attribute that cannot be set
    fixed: Value | None = None
    #: a list of names, each padded to `length`
    listed: bool = False

    def integer(self, value: Value) -> int:
        """Return the number of a value."""
        return self.words[value] if isinstance(value, str) else value

    def characters(self, value: Value) -> bytes:
        """Return a text, or each name, padded with blanks to the length of the attribute."""
        if self.listed:
            return b"".join(name.ljust(self.length) for name in _names(value))
        encoded = str(value).encode()
        return encoded if self.length == VARIABLE else encoded[: self.length].ljust(self.length)

    def parameter(self, value: Value) -> PCFParameter:
        """Return a value as a PCF parameter."""
        if self.listed:
            return string_list(self.number, _names(value), self.length)
        if self.binary:
            return MQCFBS(self.number, bytes.fromhex(str(value)).ljust(self.length, b"\0"))
        if self.length:
            return MQCFST(self.number, self.characters(value), cmqc.MQCCSI_DEFAULT)
        return MQCFIN(self.number, self.integer(value))

    def word(self, number: int) -> str:
        """Return the MQSC word for a number. Raises AttributeRefused if the number is invalid."""
        for word, value in self.words.items():
            if value == number:
                return word
        if self.words and self.keyword not in _NUMBERS_WITH_WORDS:
            raise AttributeRefused(f"{number} is no value of {self.keyword}")
        return str(number)


def _names(value: Value) -> list[bytes]:
    return [name.encode() for name in str(value).split(",")] if value else []


#: Integer attributes for which MQSC has words for some values only.
_NUMBERS_WITH_WORDS = frozenset(("DEFPRTY", "EXPIRY", "MARKINT", "MAXPROPL"))


def _number(keyword: str, number: int, **words: int) -> Selector:
    return Selector(keyword, number, words)


def _text(keyword: str, number: int, length: int) -> Selector:
    return Selector(keyword, number, length=length)


def _always(keyword: str, number: int, value: Value, length: int = 0) -> Selector:
    return Selector(keyword, number, length=length, fixed=value)


_NO_YES = {"NO": 0, "YES": 1}
_EVENT = {"DISABLED": cmqcfc.MQEVR_DISABLED, "ENABLED": cmqcfc.MQEVR_ENABLED}
_MONITORING_LEVELS = {
    "OFF": cmqc.MQMON_OFF,
    "ON": cmqc.MQMON_ON,
    "QMGR": cmqc.MQMON_Q_MGR,
    "NONE": cmqc.MQMON_NONE,
    "LOW": cmqc.MQMON_LOW,
    "MEDIUM": cmqc.MQMON_MEDIUM,
    "HIGH": cmqc.MQMON_HIGH,
}
_STAMPS = (
    _text("ALTDATE", cmqc.MQCA_ALTERATION_DATE, 12),
    _text("ALTTIME", cmqc.MQCA_ALTERATION_TIME, 8),
)
_CREATED = (
    _text("CRDATE", cmqc.MQCA_CREATION_DATE, 12),
    _text("CRTIME", cmqc.MQCA_CREATION_TIME, 8),
)

QUEUE_TYPES = {
    "QLOCAL": cmqc.MQQT_LOCAL,
    "QMODEL": cmqc.MQQT_MODEL,
    "QALIAS": cmqc.MQQT_ALIAS,
    "QREMOTE": cmqc.MQQT_REMOTE,
}
_QUEUE = (
    _text("QUEUE", cmqc.MQCA_Q_NAME, 48),
    Selector("TYPE", cmqc.MQIA_Q_TYPE, QUEUE_TYPES),
    _text("DESCR", cmqc.MQCA_Q_DESC, 64),
    _number("PUT", cmqc.MQIA_INHIBIT_PUT, ENABLED=cmqc.MQQA_PUT_ALLOWED, DISABLED=cmqc.MQQA_PUT_INHIBITED),
    _number("GET", cmqc.MQIA_INHIBIT_GET, ENABLED=cmqc.MQQA_GET_ALLOWED, DISABLED=cmqc.MQQA_GET_INHIBITED),
    _number("DEFPRTY", cmqc.MQIA_DEF_PRIORITY),
    Selector("DEFPSIST", cmqc.MQIA_DEF_PERSISTENCE, _NO_YES),
    _number("DEFBIND", cmqc.MQIA_DEF_BIND, OPEN=0, NOTFIXED=1, GROUP=2),
    _number("DEFPRESP", cmqc.MQIA_DEF_PUT_RESPONSE_TYPE, SYNC=1, ASYNC=2),
    _number("DEFREADA", cmqc.MQIA_DEF_READ_AHEAD, NO=0, YES=1, DISABLED=2),
    _number("PROPCTL", cmqc.MQIA_PROPERTY_CONTROL, COMPAT=0, NONE=1, ALL=2, FORCE=3, V6COMPAT=4),
    _number("SCOPE", cmqc.MQIA_SCOPE, QMGR=1),
    _text("CUSTOM", cmqc.MQCA_CUSTOM, 128),
    *_STAMPS,
)
_LOCAL = (
    *_CREATED,
    _number("MAXDEPTH", cmqc.MQIA_MAX_Q_DEPTH),
    _number("MAXMSGL", cmqc.MQIA_MAX_MSG_LENGTH),
    _number("MSGDLVSQ", cmqc.MQIA_MSG_DELIVERY_SEQUENCE, PRIORITY=cmqc.MQMDS_PRIORITY, FIFO=cmqc.MQMDS_FIFO),
    _number("USAGE", cmqc.MQIA_USAGE, NORMAL=cmqc.MQUS_NORMAL, XMITQ=cmqc.MQUS_TRANSMISSION),
    Selector("SHARE", cmqc.MQIA_SHAREABILITY, _NO_YES),
    _number("DEFSOPT", cmqc.MQIA_DEF_INPUT_OPEN_OPTION, SHARED=cmqc.MQOO_INPUT_SHARED, EXCL=cmqc.MQOO_INPUT_EXCLUSIVE),
    _number("DEFTYPE", cmqc.MQIA_DEFINITION_TYPE, PREDEFINED=1, PERMDYN=2, TEMPDYN=3),
    _number("BOTHRESH", cmqc.MQIA_BACKOUT_THRESHOLD),
    _text("BOQNAME", cmqc.MQCA_BACKOUT_REQ_Q_NAME, 48),
    Selector("HARDENBO", cmqc.MQIA_HARDEN_GET_BACKOUT, _NO_YES),
    _number("NPMCLASS", cmqc.MQIA_NPM_CLASS, NORMAL=cmqc.MQNPM_CLASS_NORMAL, HIGH=cmqc.MQNPM_CLASS_HIGH),
    _number("CURDEPTH", cmqc.MQIA_CURRENT_Q_DEPTH),
    _number("IPPROCS", cmqc.MQIA_OPEN_INPUT_COUNT),
    _number("OPPROCS", cmqc.MQIA_OPEN_OUTPUT_COUNT),
    Selector("DISTL", cmqc.MQIA_DIST_LISTS, _NO_YES),
    _text("INITQ", cmqc.MQCA_INITIATION_Q_NAME, 48),
    _text("PROCESS", cmqc.MQCA_PROCESS_NAME, 48),
    Selector("TRIGGER", cmqc.MQIA_TRIGGER_CONTROL, _NO_YES),
    _text("TRIGDATA", cmqc.MQCA_TRIGGER_DATA, 64),
    _number("TRIGDPTH", cmqc.MQIA_TRIGGER_DEPTH),
    _number("TRIGMPRI", cmqc.MQIA_TRIGGER_MSG_PRIORITY),
    _number("TRIGTYPE", cmqc.MQIA_TRIGGER_TYPE, NONE=0, FIRST=1, EVERY=2, DEPTH=3),
    _number("RETINTVL", cmqc.MQIA_RETENTION_INTERVAL),
    _number("QDEPTHHI", cmqc.MQIA_Q_DEPTH_HIGH_LIMIT),
    _number("QDEPTHLO", cmqc.MQIA_Q_DEPTH_LOW_LIMIT),
    Selector("QDPMAXEV", cmqc.MQIA_Q_DEPTH_MAX_EVENT, _EVENT),
    Selector("QDPHIEV", cmqc.MQIA_Q_DEPTH_HIGH_EVENT, _EVENT),
    Selector("QDPLOEV", cmqc.MQIA_Q_DEPTH_LOW_EVENT, _EVENT),
    _number("QSVCIEV", cmqc.MQIA_Q_SERVICE_INTERVAL_EVENT, NONE=0, HIGH=1, OK=2),
    _number("QSVCINT", cmqc.MQIA_Q_SERVICE_INTERVAL),
    Selector("ACCTQ", cmqc.MQIA_ACCOUNTING_Q, _MONITORING_LEVELS),
    Selector("MONQ", cmqc.MQIA_MONITORING_Q, _MONITORING_LEVELS),
    Selector("STATQ", cmqc.MQIA_STATISTICS_Q, _MONITORING_LEVELS),
)
_ALIAS = (
    _text("TARGET", cmqc.MQCA_BASE_OBJECT_NAME, 48),
    _number("TARGTYPE", cmqc.MQIA_BASE_TYPE, QUEUE=cmqc.MQOT_Q, TOPIC=cmqc.MQOT_TOPIC),
)
_REMOTE = (
    _text("RNAME", cmqc.MQCA_REMOTE_Q_NAME, 48),
    _text("RQMNAME", cmqc.MQCA_REMOTE_Q_MGR_NAME, 48),
    _text("XMITQ", cmqc.MQCA_XMIT_Q_NAME, 48),
)
_QUEUE_MANAGER = (
    _text("QMNAME", cmqc.MQCA_Q_MGR_NAME, 48),
    _text("QMID", cmqc.MQCA_Q_MGR_IDENTIFIER, 48),
    _text("DESCR", cmqc.MQCA_Q_MGR_DESC, 64),
    _text("DEADQ", cmqc.MQCA_DEAD_LETTER_Q_NAME, 48),
    _text("DEFXMITQ", cmqc.MQCA_DEF_XMIT_Q_NAME, 48),
    _text("CUSTOM", cmqc.MQCA_CUSTOM, 128),
    _number("MAXMSGL", cmqc.MQIA_MAX_MSG_LENGTH),
    _number("MAXHANDS", cmqc.MQIA_MAX_HANDLES),
    _number("MAXUMSGS", cmqc.MQIA_MAX_UNCOMMITTED_MSGS),
    _number("CCSID", cmqc.MQIA_CODED_CHAR_SET_ID),
    _number("MARKINT", cmqc.MQIA_MSG_MARK_BROWSE_INTERVAL, NOLIMIT=-1),
    _number("MAXPROPL", cmqc.MQIA_MAX_PROPERTIES_LENGTH, NOLIMIT=-1),
    _number("TREELIFE", cmqc.MQIA_TREE_LIFE_TIME),
    _number("TRIGINT", cmqc.MQIA_TRIGGER_INTERVAL),
    Selector("ACCTMQI", cmqc.MQIA_ACCOUNTING_MQI, _MONITORING_LEVELS),
    Selector("ACCTQ", cmqc.MQIA_ACCOUNTING_Q, _MONITORING_LEVELS),
    Selector("MONQ", cmqc.MQIA_MONITORING_Q, _MONITORING_LEVELS),
    Selector("STATMQI", cmqc.MQIA_STATISTICS_MQI, _MONITORING_LEVELS),
    Selector("STATQ", cmqc.MQIA_STATISTICS_Q, _MONITORING_LEVELS),
    Selector("AUTHOREV", cmqc.MQIA_AUTHORITY_EVENT, _EVENT),
    Selector("CHLEV", cmqc.MQIA_CHANNEL_EVENT, _EVENT | {"EXCEPTION": cmqcfc.MQEVR_EXCEPTION}),
    Selector("CMDEV", cmqc.MQIA_COMMAND_EVENT, _EVENT | {"NODISPLAY": cmqcfc.MQEVR_NO_DISPLAY}),
    Selector("CONFIGEV", cmqc.MQIA_CONFIGURATION_EVENT, _EVENT),
    Selector("INHIBTEV", cmqc.MQIA_INHIBIT_EVENT, _EVENT),
    Selector("LOCALEV", cmqc.MQIA_LOCAL_EVENT, _EVENT),
    Selector("PERFMEV", cmqc.MQIA_PERFORMANCE_EVENT, _EVENT),
    Selector("REMOTEEV", cmqc.MQIA_REMOTE_EVENT, _EVENT),
    Selector("STRSTPEV", cmqc.MQIA_START_STOP_EVENT, _EVENT),
    _always("COMMANDQ", cmqc.MQCA_COMMAND_INPUT_Q_NAME, "SYSTEM.ADMIN.COMMAND.QUEUE", 48),
    _always("CMDLEVEL", cmqc.MQIA_COMMAND_LEVEL, cmqc.MQCMDL_LEVEL_940),
    _always("PLATFORM", cmqc.MQIA_PLATFORM, cmqc.MQPL_UNIX),
    _always("MAXPRTY", cmqc.MQIA_MAX_PRIORITY, 9),
    _always("SYNCPT", cmqc.MQIA_SYNCPOINT, cmqc.MQSP_AVAILABLE),
    Selector("CHLAUTH", cmqc.MQIA_CHLAUTH_RECORDS, {"ENABLED": cmqcfc.MQCHLA_ENABLED}, fixed=cmqcfc.MQCHLA_ENABLED),
    _always("CONNAUTH", cmqc.MQCA_CONN_AUTH, "SYSTEM.DEFAULT.AUTHINFO.IDPWOS", 48),
    *_CREATED,
    *_STAMPS,
)
_SUBSCRIPTION = (
    _text("SUB", cmqcfc.MQCACF_SUB_NAME, VARIABLE),
    Selector("SUBID", cmqcfc.MQBACF_SUB_ID, length=24, binary=True),
    _text("TOPICSTR", cmqc.MQCA_TOPIC_STRING, VARIABLE),
    _text("TOPICOBJ", cmqc.MQCA_TOPIC_NAME, 48),
    _text("DEST", cmqcfc.MQCACF_DESTINATION, 48),
    _text("DESTQMGR", cmqcfc.MQCACF_DESTINATION_Q_MGR, 48),
    Selector("DESTCORL", cmqcfc.MQBACF_DESTINATION_CORREL_ID, length=24, binary=True),
    _number("DESTCLAS", cmqcfc.MQIACF_DESTINATION_CLASS, MANAGED=cmqc.MQDC_MANAGED, PROVIDED=cmqc.MQDC_PROVIDED),
    _number("DURABLE", cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, YES=cmqc.MQSUB_DURABLE_YES, NO=cmqc.MQSUB_DURABLE_NO),
    _number("SUBTYPE", cmqcfc.MQIACF_SUB_TYPE, API=1, ADMIN=2, PROXY=3),
    _text("USERDATA", cmqcfc.MQCACF_SUB_USER_DATA, VARIABLE),
    _number("SUBLEVEL", cmqcfc.MQIACF_SUB_LEVEL),
    _text("SUBUSER", cmqcfc.MQCACF_SUB_USER_ID, 12),
    _number("EXPIRY", cmqcfc.MQIACF_EXPIRY, UNLIMITED=cmqc.MQEI_UNLIMITED),
    _number("WSCHEMA", cmqcfc.MQIACF_WILDCARD_SCHEMA, CHAR=cmqc.MQWS_CHAR, TOPIC=cmqc.MQWS_TOPIC),
    _text("SELECTOR", cmqcfc.MQCACF_SUB_SELECTOR, VARIABLE),
    _always("VARUSER", cmqcfc.MQIACF_VARIABLE_USER_ID, cmqc.MQVU_ANY_USER),
    _always("SUBSCOPE", cmqcfc.MQIACF_SUBSCRIPTION_SCOPE, cmqc.MQSCOPE_ALL),
    _always("REQONLY", cmqcfc.MQIACF_REQUEST_ONLY, cmqc.MQRU_PUBLISH_ALL),
)

_NAMELIST = (
    _text("NAMELIST", cmqc.MQCA_NAMELIST_NAME, 48),
    _text("DESCR", cmqc.MQCA_NAMELIST_DESC, 64),
    _always("NLTYPE", cmqc.MQIA_NAMELIST_TYPE, cmqc.MQNT_NONE),
    _number("NAMCOUNT", cmqc.MQIA_NAME_COUNT),
    Selector("NAMES", cmqc.MQCA_NAMES, length=48, listed=True),
    *_STAMPS,
)

#: kind of object -> its attributes by PCF selector. The tests' stand-in for IBM MQ adds more.
SELECTORS: dict[str, dict[int, Selector]] = {
    kind: {row.number: row for row in rows}
    for kind, rows in {
        "QMGR": _QUEUE_MANAGER,
        "QLOCAL": (*_QUEUE, *_LOCAL),
        "QMODEL": (*_QUEUE, *_LOCAL),
        "QALIAS": (*_QUEUE, *_ALIAS),
        "QREMOTE": (*_QUEUE, *_REMOTE),
        "QUEUE": (*_QUEUE, *_LOCAL, *_ALIAS, *_REMOTE),
        "NAMELIST": _NAMELIST,
        "SUB": _SUBSCRIPTION,
    }.items()
}


def selector(kind: str, number: int) -> Selector | None:
    """Return the attribute with this PCF selector of a kind of object (QLOCAL, QMGR, TOPIC …), or None."""
    return SELECTORS[kind].get(number)


def values(kind: str, shown: Mapping[str, Value], *, wanted: Iterable[int] | None = None) -> dict[int, PCFParameter]:
    """Convert the attributes of an object, by MQSC keyword, to PCF parameters by selector.

    `wanted` restricts them to these selectors. Attributes that the object does not have (CURDEPTH of an alias) are omitted.
    """
    parameters: dict[int, PCFParameter] = {}
    for number in SELECTORS[kind] if wanted is None else wanted:
        attribute = SELECTORS[kind][number]
        value = shown.get(attribute.keyword, attribute.fixed)
        if value is not None:
            parameters[number] = attribute.parameter(value)
    return parameters
