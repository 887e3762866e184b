"""Attributes of queue manager objects: MQSC keywords, valid values, defaults, and PCF selectors.

Source: IBM MQ documentation, "MQSC commands reference" (DEFINE QLOCAL, QALIAS, QREMOTE, TOPIC, SUB; ALTER QMGR). Values
are stored as displayed by MQSC: numbers as int, all others as text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.wire import cmqc, cmqcfc

Value = str | int


class AttributeRefused(ValueError):
    """A keyword or value is invalid for an object. The message contains the expected values."""


@dataclass(frozen=True)
class Choice:
    """An attribute whose value is one of several words. With a PCF selector, `words` contains their numbers."""

    words: Mapping[str, int] | tuple[str, ...]
    default: str
    #: PCF selector, or 0 if MQINQ and PCF commands do not return the attribute
    number: int = 0

    def read(self, keyword: str, text: str) -> Value:
        if (word := text.upper()) not in self.words:
            raise AttributeRefused(f"{keyword} must be one of {', '.join(self.words)}, found {text!r}")
        return word


@dataclass(frozen=True)
class Number:
    """An integer attribute with a range, possibly with words as additional values."""

    low: int
    high: int
    default: Value
    number: int = 0
    #: words, and their numbers
    words: Mapping[str, int] = field(default_factory=dict)

    def read(self, keyword: str, text: str) -> Value:
        if text.upper() in self.words:
            return text.upper()
        try:
            number = int(text)
        except ValueError:
            number = self.low - 1
        if not self.low <= number <= self.high:
            also = f" or {' or '.join(self.words)}" if self.words else ""
            raise AttributeRefused(f"{keyword} must be a number from {self.low} to {self.high}{also}, found {text!r}")
        return number


@dataclass(frozen=True)
class TextAttribute:
    """A text attribute with a maximum length. `name` restricts it to the characters of MQ object names."""

    length: int
    number: int = 0
    name: bool = False
    default: str = ""

    def read(self, keyword: str, text: str) -> Value:
        text = text.rstrip(" ")
        if len(text) > self.length:
            raise AttributeRefused(f"{keyword} has {len(text)} characters, the maximum is {self.length}")
        if self.name and (wrong := invalid_name_character(text)):
            raise AttributeRefused(f"{keyword} contains {wrong!r}, which is not allowed in MQ object names")
        return text


@dataclass(frozen=True)
class Names:
    """A list of object names, stored as displayed by MQSC: separated by commas, which names do not contain."""

    number: int
    default: str = ""

    def read(self, keyword: str, text: str) -> Value:
        names = [name.strip(" ") for name in text.split(",")] if text.strip(" ") else []
        if len(names) > _MAX_NAMES:
            raise AttributeRefused(f"{keyword} has {len(names)} names, the maximum is {_MAX_NAMES}")
        for name in names:
            _name().read(keyword, name)
        return ",".join(names)


@dataclass(frozen=True)
class Words:
    """A set of words, stored in the order of `words` and separated by commas."""

    words: tuple[str, ...]
    default: str
    number: int = 0

    def read(self, keyword: str, text: str) -> Value:
        words = [word.strip(" ").upper() for word in text.split(",")]
        if not set(words) <= set(self.words) or len(set(words)) < len(words):
            raise AttributeRefused(f"{keyword} must be one or more of {', '.join(self.words)}, found {text!r}")
        return ",".join(word for word in self.words if word in words)


Attribute = Choice | Number | TextAttribute | Names | Words

#: Characters of MQ object names ("Rules for naming IBM MQ objects").
NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/%")
MQ_OBJECT_NAME_LENGTH = 48


def invalid_name_character(name: str) -> str | None:
    """Return the first character of `name` that is invalid in MQ object names, or None."""
    return next((character for character in name if character not in NAME_CHARACTERS), None)


_MAX_NAMES = 256
_NUMBER = 999_999_999
_MAX_MESSAGE = 104_857_600
#: Maximum length of topic strings and user data, which PCF does not pad.
_LONG_TEXT = 10_240
_NO_YES = {"NO": 0, "YES": 1}


def _name(number: int = 0) -> TextAttribute:
    return TextAttribute(MQ_OBJECT_NAME_LENGTH, number, name=True)


_PUT = Choice({"ENABLED": cmqc.MQQA_PUT_ALLOWED, "DISABLED": cmqc.MQQA_PUT_INHIBITED}, "ENABLED", cmqc.MQIA_INHIBIT_PUT)
_GET = Choice({"ENABLED": cmqc.MQQA_GET_ALLOWED, "DISABLED": cmqc.MQQA_GET_INHIBITED}, "ENABLED", cmqc.MQIA_INHIBIT_GET)
_DEFPRTY = Number(0, 9, 0, cmqc.MQIA_DEF_PRIORITY)
_DEFPSIST = Choice(_NO_YES, "NO", cmqc.MQIA_DEF_PERSISTENCE)
_QUEUE_DESCR = TextAttribute(64, cmqc.MQCA_Q_DESC)
_TRPTYPE = Choice(("TCP",), "TCP")
_ENABLED_ASPARENT = Choice(("ASPARENT", "ENABLED", "DISABLED"), "ASPARENT")
_YES_ASPARENT = Choice(("ASPARENT", "YES", "NO"), "ASPARENT")
_DELIVERY = Choice(("ASPARENT", "ALL", "ALLAVAIL", "ALLDUR"), "ASPARENT")
ATTRIBUTES: dict[str, dict[str, Attribute]] = {
    "QMGR": {
        "DESCR": TextAttribute(64, cmqc.MQCA_Q_MGR_DESC),
        "DEADQ": _name(cmqc.MQCA_DEAD_LETTER_Q_NAME),
        "DEFXMITQ": _name(cmqc.MQCA_DEF_XMIT_Q_NAME),
        "MAXMSGL": Number(32_768, _MAX_MESSAGE, 4_194_304, cmqc.MQIA_MAX_MSG_LENGTH),
        "MAXHANDS": Number(0, _NUMBER, 256, cmqc.MQIA_MAX_HANDLES),
        "MAXUMSGS": Number(1, _NUMBER, 10_000, cmqc.MQIA_MAX_UNCOMMITTED_MSGS),
        "CCSID": Number(1, 65_535, 1208, cmqc.MQIA_CODED_CHAR_SET_ID),
    },
    "QLOCAL": {
        "DESCR": _QUEUE_DESCR,
        "PUT": _PUT,
        "GET": _GET,
        "DEFPRTY": _DEFPRTY,
        "DEFPSIST": _DEFPSIST,
        "MAXDEPTH": Number(0, _NUMBER, 5_000, cmqc.MQIA_MAX_Q_DEPTH),
        "MAXMSGL": Number(0, _MAX_MESSAGE, 4_194_304, cmqc.MQIA_MAX_MSG_LENGTH),
        "MSGDLVSQ": Choice(
            {"PRIORITY": cmqc.MQMDS_PRIORITY, "FIFO": cmqc.MQMDS_FIFO}, "PRIORITY", cmqc.MQIA_MSG_DELIVERY_SEQUENCE
        ),
        "USAGE": Choice({"NORMAL": cmqc.MQUS_NORMAL, "XMITQ": cmqc.MQUS_TRANSMISSION}, "NORMAL", cmqc.MQIA_USAGE),
        "SHARE": Choice({"YES": 1, "NO": 0}, "YES", cmqc.MQIA_SHAREABILITY),
        "DEFSOPT": Choice(
            {"SHARED": cmqc.MQOO_INPUT_SHARED, "EXCL": cmqc.MQOO_INPUT_EXCLUSIVE},
            "SHARED",
            cmqc.MQIA_DEF_INPUT_OPEN_OPTION,
        ),
    },
    "QALIAS": {
        "DESCR": _QUEUE_DESCR,
        "PUT": _PUT,
        "GET": _GET,
        "DEFPRTY": _DEFPRTY,
        "DEFPSIST": _DEFPSIST,
        "TARGET": _name(cmqc.MQCA_BASE_OBJECT_NAME),
        "TARGTYPE": Choice({"QUEUE": cmqc.MQOT_Q, "TOPIC": cmqc.MQOT_TOPIC}, "QUEUE", cmqc.MQIA_BASE_TYPE),
    },
    "QREMOTE": {
        "DESCR": _QUEUE_DESCR,
        "PUT": _PUT,
        "DEFPRTY": _DEFPRTY,
        "DEFPSIST": _DEFPSIST,
        "RNAME": TextAttribute(48, cmqc.MQCA_REMOTE_Q_NAME),
        "RQMNAME": TextAttribute(48, cmqc.MQCA_REMOTE_Q_MGR_NAME),
        "XMITQ": _name(cmqc.MQCA_XMIT_Q_NAME),
    },
    "NAMELIST": {"DESCR": TextAttribute(64, cmqc.MQCA_NAMELIST_DESC), "NAMES": Names(cmqc.MQCA_NAMES)},
    #: telemetry channels, CHLTYPE(MQTT)
    "CHANNEL": {
        "BACKLOG": Number(1, 65_535, 4_096),
        "DESCR": TextAttribute(64),
        "LOCLADDR": TextAttribute(48),
        "MCAUSER": TextAttribute(12),
        "PORT": Number(0, 65_535, 1_883),
        "PROTOCOL": Words(("MQTTV5", "MQTTV311", "MQTTV3", "HTTP"), "MQTTV5,MQTTV311,MQTTV3"),
        "SSLCAUTH": Choice(("NEVER", "OPTIONAL", "REQUIRED"), "NEVER"),
        "SSLCIPH": TextAttribute(1_024),
        "SSLKEYP": TextAttribute(256),
        "SSLKEYR": TextAttribute(256),
        "TRPTYPE": _TRPTYPE,
        "USECLTID": Choice(("NO", "YES"), "NO"),
    },
    #: server-connection channels, CHLTYPE(SVRCONN), used by the tests' stand-in for IBM MQ, without HBINT and MCAUSER
    "SVRCONN": {
        "DESCR": TextAttribute(64),
        "HBINT": Number(0, 999_999, 300),
        "MAXINST": Number(0, _NUMBER, _NUMBER),
        "MAXINSTC": Number(0, _NUMBER, _NUMBER),
        "MAXMSGL": Number(0, _MAX_MESSAGE, 4_194_304),
        "MCAUSER": TextAttribute(64),
        "SHARECNV": Number(0, _NUMBER, 10),
        "SSLCAUTH": Choice(("REQUIRED", "OPTIONAL"), "REQUIRED"),
        "SSLCIPH": TextAttribute(32),
        "SSLPEER": TextAttribute(1_024),
        "TRPTYPE": _TRPTYPE,
    },
    "TOPIC": {
        "DESCR": TextAttribute(64),
        "TOPICSTR": TextAttribute(_LONG_TEXT),
        "PUB": _ENABLED_ASPARENT,
        "SUB": _ENABLED_ASPARENT,
        "DEFPSIST": Choice(("ASPARENT", "NO", "YES"), "ASPARENT"),
        "DEFPRTY": Number(0, 9, "ASPARENT", words={"ASPARENT": -2}),
        "DURSUB": _YES_ASPARENT,
        "PMSGDLV": _DELIVERY,
        "NPMSGDLV": _DELIVERY,
        "USEDLQ": _YES_ASPARENT,
        "WILDCARD": Choice(("PASSTHRU", "BLOCK"), "PASSTHRU"),
    },
    "SUB": {
        "TOPICSTR": TextAttribute(_LONG_TEXT, cmqc.MQCA_TOPIC_STRING),
        "TOPICOBJ": _name(cmqc.MQCA_TOPIC_NAME),
        "DEST": TextAttribute(48, cmqcfc.MQCACF_DESTINATION),
        "DESTQMGR": TextAttribute(48, cmqcfc.MQCACF_DESTINATION_Q_MGR),
        "DESTCORL": TextAttribute(48),
        "USERDATA": TextAttribute(_LONG_TEXT, cmqcfc.MQCACF_SUB_USER_DATA),
        "SUBLEVEL": Number(0, 9, 1, cmqcfc.MQIACF_SUB_LEVEL),
        "EXPIRY": Number(0, _NUMBER, "UNLIMITED", cmqcfc.MQIACF_EXPIRY, {"UNLIMITED": cmqc.MQEI_UNLIMITED}),
        "WSCHEMA": Choice({"TOPIC": cmqc.MQWS_TOPIC, "CHAR": cmqc.MQWS_CHAR}, "TOPIC", cmqcfc.MQIACF_WILDCARD_SCHEMA),
        "SUBUSER": TextAttribute(12, cmqcfc.MQCACF_SUB_USER_ID),
    },
}

#: A model queue has the attributes of its dynamic queues, and their type (DEFTYPE).
ATTRIBUTES["QMODEL"] = ATTRIBUTES["QLOCAL"] | {"DEFTYPE": Choice(("TEMPDYN", "PERMDYN"), "TEMPDYN")}


def _keywords(words: str) -> frozenset[str]:
    return frozenset(words.split())


_QUEUE_IGNORED = _keywords(
    "ACCTQ BOQNAME BOTHRESH CAPEXPRY CLUSNL CLUSTER CLWLPRTY CLWLRANK CLWLUSEQ CUSTOM DEFBIND DEFPRESP DEFREADA DISTL "
    "HARDENBO IMGRCOVQ INITQ MAXFSIZE MONQ NPMCLASS OTELPCTL PROCESS PROPCTL QDEPTHHI QDEPTHLO QDPHIEV QDPLOEV QDPMAXEV "
    "QSVCIEV QSVCINT RETINTVL SCOPE STATQ STREAMQ STRMQOS TRIGDATA TRIGDPTH TRIGGER TRIGMPRI TRIGTYPE"
)
#: Attributes of IBM MQ without an effect here, by kind of object. Commands ignore them, with a warning: the embedded queue
#: manager has no events, triggers, statistics or clusters. The tests' stand-in for IBM MQ has some of them.
IGNORED: dict[str, frozenset[str]] = {
    "QMGR": _keywords(
        "ACCTCONO ACCTINT ACCTMQI ACCTQ ACTIVREC ACTVCONO ACTVTRC AUTHOREV CERTLABL CHAD CHADEV CHADEXIT CHLEV CLWLDATA "
        "CLWLEXIT CLWLLEN CLWLMRUC CLWLUSEQ CMDEV CONFIGEV CUSTOM DEFCLXQ IMGINTVL IMGLOGLN IMGRCOVO IMGRCOVQ IMGSCHED "
        "INHIBTEV INITKEY IPADDRV KEYRPWD LOCALEV LOGGEREV MARKINT MAXPROPL MONACLS MONCHL MONQ OTELPCTL OTELTRAC PARENT "
        "PERFMEV PSCLUS PSMODE PSNPMSG PSNPRES PSRTYCNT PSSYNCPT REMOTEEV REPOS REPOSNL REVDNS ROUTEREC SCHINIT SCMDSERV "
        "SSLCRLNL SSLCRYP SSLEV SSLFIPS SSLKEYR SSLRKEYC STATACLS STATCHL STATINT STATMQI STATQ STRSTPEV SUITEB TREELIFE "
        "TRIGINT"
    ),
    **dict.fromkeys(("QLOCAL", "QMODEL", "QALIAS", "QREMOTE"), _QUEUE_IGNORED),
    "TOPIC": _keywords(
        "CAPEXPRY CLROUTE CLUSTER COMMINFO CUSTOM DEFPRESP MCAST MDURMDL MNDURMDL PROXYSUB PUBSCOPE SUBSCOPE"
    ),
    "SUB": _keywords("PUBACCT PUBAPPID PUBPRTY PSPROP REQONLY SUBSCOPE VARUSER"),
}


def without_effect(kind: str, keyword: str) -> bool:
    """Return whether an attribute of IBM MQ has no effect here."""
    return keyword in IGNORED.get(kind, ()) and keyword not in ATTRIBUTES[kind]


def effective(kind: str, attributes: dict[str, Value]) -> dict[str, Value]:
    """Return the stored attributes of an object without those that have no effect, which older releases stored."""
    return {keyword: value for keyword, value in attributes.items() if not without_effect(kind, keyword)}


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
}


#: Times of creation and last change, which commands cannot set.
STAMPS = ("CRDATE", "CRTIME", "ALTDATE", "ALTTIME")


def stamps(seconds: float) -> dict[str, Value]:
    """Return the STAMPS of an object created at a time, in seconds since the epoch."""
    local_time = time.localtime(seconds)
    date, clock = time.strftime("%Y-%m-%d", local_time), time.strftime("%H.%M.%S", local_time)
    return {"CRDATE": date, "CRTIME": clock, "ALTDATE": date, "ALTTIME": clock}


def defaults(kind: str) -> dict[str, Value]:
    """Return the attributes of a new object of a kind (QLOCAL, TOPIC …)."""
    return {keyword: attribute.default for keyword, attribute in ATTRIBUTES[kind].items()}


def read(kind: str, keyword: str, text: str) -> Value:
    """Return the value of an attribute from its MQSC text. Raises AttributeRefused."""
    attribute = ATTRIBUTES[kind].get(keyword)
    if attribute is None:
        raise AttributeRefused(f"{keyword} is not an attribute of {kind} on this queue manager")
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
    #: length of a text or byte string in bytes, VARIABLE, or 0 for an integer
    length: int = 0
    #: whether it is a byte string, which is hexadecimal in MQSC
    binary: bool = False
    #: the constant value of an attribute that cannot be set
    fixed: Value | None = None
    #: whether it is a list of names, each padded to `length`
    listed: bool = False
    #: whether it is a number. `words` contains some of its values
    is_number: bool = False

    def integer(self, value: Value) -> int:
        """Return the number of a value."""
        return self.words[value] if isinstance(value, str) else value

    def characters(self, value: Value) -> bytes:
        """Return a text, or each name, padded with blanks to the length of the attribute."""
        if self.listed:
            return b"".join(name.ljust(self.length) for name in names_in(value))
        encoded = str(value).encode()
        return encoded if self.length == VARIABLE else encoded[: self.length].ljust(self.length)

    def word(self, number: int) -> str:
        """Return the MQSC word for a number. Raises AttributeRefused if the number is invalid."""
        for word, value in self.words.items():
            if value == number:
                return word
        if self.words and not self.is_number:
            raise AttributeRefused(f"{number} is not a value of {self.keyword}")
        return str(number)


def names_in(value: Value) -> list[bytes]:
    return [name.encode() for name in str(value).split(",")] if value else []


def _row(keyword: str, attribute: Attribute) -> Selector:
    """Return the selector of an attribute that commands set."""
    number = attribute.number
    if isinstance(attribute, TextAttribute):
        return Selector(keyword, number, length=VARIABLE if attribute.length == _LONG_TEXT else attribute.length)
    if isinstance(attribute, Names):
        return Selector(keyword, number, length=MQ_OBJECT_NAME_LENGTH, listed=True)
    assert isinstance(attribute.words, Mapping)
    return Selector(keyword, number, attribute.words, is_number=isinstance(attribute, Number))


QUEUE_TYPES = {
    "QLOCAL": cmqc.MQQT_LOCAL,
    "QMODEL": cmqc.MQQT_MODEL,
    "QALIAS": cmqc.MQQT_ALIAS,
    "QREMOTE": cmqc.MQQT_REMOTE,
}
_QUEUE = (Selector("QUEUE", cmqc.MQCA_Q_NAME, length=48), Selector("TYPE", cmqc.MQIA_Q_TYPE, QUEUE_TYPES))
#: Attributes by kind of object that no command sets.
_FIXED: dict[str, tuple[Selector, ...]] = {
    "QMGR": (
        Selector("QMNAME", cmqc.MQCA_Q_MGR_NAME, length=48),
        Selector("QMID", cmqc.MQCA_Q_MGR_IDENTIFIER, length=48),
        Selector("CONNAUTH", cmqc.MQCA_CONN_AUTH, length=48, fixed="SYSTEM.DEFAULT.AUTHINFO.IDPWOS"),
    ),
    "QLOCAL": (*_QUEUE, Selector("CURDEPTH", cmqc.MQIA_CURRENT_Q_DEPTH)),
    "QALIAS": _QUEUE,
    "QREMOTE": _QUEUE,
}


def selectors(kind: str, *fixed: Selector) -> dict[int, Selector]:
    """Return all attributes of a kind of object by PCF selector, including those that commands cannot set."""
    rows = [_row(keyword, attribute) for keyword, attribute in ATTRIBUTES[kind].items() if attribute.number]
    return {row.number: row for row in (*fixed, *rows)}


#: kind of object -> its attributes by PCF selector. The tests' stand-in for IBM MQ adds more.
SELECTORS: dict[str, dict[int, Selector]] = {kind: selectors(kind, *rows) for kind, rows in _FIXED.items()}


def selector(kind: str, number: int) -> Selector | None:
    """Return the attribute with this PCF selector of a kind of object (QLOCAL, QMGR, TOPIC …), or None."""
    return SELECTORS[kind].get(number)
