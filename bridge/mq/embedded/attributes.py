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
    """A keyword or value is invalid for an object. The message contains what was expected."""


@dataclass(frozen=True)
class Choice:
    """An attribute whose value is one of several words. With a PCF selector, `words` has their numbers."""

    words: Mapping[str, int] | tuple[str, ...]
    default: str
    #: PCF selector; 0 if MQINQ and PCF commands do not return the attribute
    number: int = 0

    def read(self, keyword: str, text: str) -> Value:
        if (word := text.upper()) not in self.words:
            raise AttributeRefused(f"{keyword} is one of {', '.join(self.words)}, not {text!r}")
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
            raise AttributeRefused(f"{keyword} is a number from {self.low} to {self.high}{also}, not {text!r}")
        return number


@dataclass(frozen=True)
class Text:
    """A text attribute with a maximum length. `name` restricts it to the characters of MQ object names."""

    length: int
    number: int = 0
    name: bool = False
    default: str = ""

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

    number: int
    default: str = ""

    def read(self, keyword: str, text: str) -> Value:
        names = [name.strip(" ") for name in text.split(",")] if text.strip(" ") else []
        if len(names) > _MAX_NAMES:
            raise AttributeRefused(f"{keyword} has at most {_MAX_NAMES} names, not {len(names)}")
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


_MAX_NAMES = 256
_NUMBER = 999_999_999
_MAX_MESSAGE = 104_857_600
#: Maximum length of topic strings and user data, which PCF does not pad.
_LONG_TEXT = 10_240
_NO_YES = {"NO": 0, "YES": 1}
_LEVELS = {
    "QMGR": cmqc.MQMON_Q_MGR,
    "OFF": cmqc.MQMON_OFF,
    "ON": cmqc.MQMON_ON,
    "NONE": cmqc.MQMON_NONE,
    "LOW": cmqc.MQMON_LOW,
    "MEDIUM": cmqc.MQMON_MEDIUM,
    "HIGH": cmqc.MQMON_HIGH,
}


def _name(number: int = 0) -> Text:
    return Text(MQ_OBJECT_NAME_LENGTH, number, name=True)


def _event(number: int, default: str = "DISABLED", **more: int) -> Choice:
    words = {"DISABLED": cmqcfc.MQEVR_DISABLED, "ENABLED": cmqcfc.MQEVR_ENABLED}
    ordered = dict(sorted(words.items(), key=lambda one: one[0] != default))
    return Choice(ordered | more, default, number)


def _level(number: int, *words: str) -> Choice:
    return Choice({word: _LEVELS[word] for word in words}, words[0], number)


_PUT = Choice({"ENABLED": cmqc.MQQA_PUT_ALLOWED, "DISABLED": cmqc.MQQA_PUT_INHIBITED}, "ENABLED", cmqc.MQIA_INHIBIT_PUT)
_GET = Choice({"ENABLED": cmqc.MQQA_GET_ALLOWED, "DISABLED": cmqc.MQQA_GET_INHIBITED}, "ENABLED", cmqc.MQIA_INHIBIT_GET)
_DEFPRTY = Number(0, 9, 0, cmqc.MQIA_DEF_PRIORITY)
_DEFPSIST = Choice(_NO_YES, "NO", cmqc.MQIA_DEF_PERSISTENCE)
_DEFREADA = Choice({"NO": 0, "YES": 1, "DISABLED": 2}, "NO", cmqc.MQIA_DEF_READ_AHEAD)
_PROPCTL = Choice({"COMPAT": 0, "ALL": 2, "FORCE": 3, "NONE": 1, "V6COMPAT": 4}, "COMPAT", cmqc.MQIA_PROPERTY_CONTROL)
_CUSTOM = Text(128, cmqc.MQCA_CUSTOM)
_QUEUE_DESCR = Text(64, cmqc.MQCA_Q_DESC)
_TRPTYPE = Choice(("TCP",), "TCP")
_ENABLED_ASPARENT = Choice(("ASPARENT", "ENABLED", "DISABLED"), "ASPARENT")
_YES_ASPARENT = Choice(("ASPARENT", "YES", "NO"), "ASPARENT")
_DELIVERY = Choice(("ASPARENT", "ALL", "ALLAVAIL", "ALLDUR"), "ASPARENT")
_SCOPE = Choice(("ASPARENT", "ALL", "QMGR"), "ASPARENT")
#: Attributes of all kinds of queues.
_ANY_QUEUE: dict[str, Attribute] = {
    "DEFBIND": Choice({"OPEN": 0, "NOTFIXED": 1, "GROUP": 2}, "OPEN", cmqc.MQIA_DEF_BIND),
    "DEFPRESP": Choice({"SYNC": 1, "ASYNC": 2}, "SYNC", cmqc.MQIA_DEF_PUT_RESPONSE_TYPE),
    "SCOPE": Choice({"QMGR": 1}, "QMGR", cmqc.MQIA_SCOPE),
    "CUSTOM": _CUSTOM,
}
#: Attributes that are stored and displayed for compatibility but have no effect: the embedded queue manager has no events,
#: triggers or statistics.
_WITHOUT_EFFECT: dict[str, Attribute] = {
    "ACCTQ": _level(cmqc.MQIA_ACCOUNTING_Q, "QMGR", "OFF", "ON"),
    "DEFREADA": _DEFREADA,
    "DISTL": Choice(_NO_YES, "NO", cmqc.MQIA_DIST_LISTS),
    "HARDENBO": Choice(_NO_YES, "NO", cmqc.MQIA_HARDEN_GET_BACKOUT),
    "INITQ": _name(cmqc.MQCA_INITIATION_Q_NAME),
    "MONQ": _level(cmqc.MQIA_MONITORING_Q, "QMGR", "OFF", "LOW", "MEDIUM", "HIGH"),
    "PROCESS": _name(cmqc.MQCA_PROCESS_NAME),
    "QDEPTHHI": Number(0, 100, 80, cmqc.MQIA_Q_DEPTH_HIGH_LIMIT),
    "QDEPTHLO": Number(0, 100, 20, cmqc.MQIA_Q_DEPTH_LOW_LIMIT),
    "QDPHIEV": _event(cmqc.MQIA_Q_DEPTH_HIGH_EVENT),
    "QDPLOEV": _event(cmqc.MQIA_Q_DEPTH_LOW_EVENT),
    "QDPMAXEV": _event(cmqc.MQIA_Q_DEPTH_MAX_EVENT, "ENABLED"),
    "QSVCIEV": Choice({"NONE": 0, "HIGH": 1, "OK": 2}, "NONE", cmqc.MQIA_Q_SERVICE_INTERVAL_EVENT),
    "QSVCINT": Number(0, _NUMBER, _NUMBER, cmqc.MQIA_Q_SERVICE_INTERVAL),
    "RETINTVL": Number(0, _NUMBER, _NUMBER, cmqc.MQIA_RETENTION_INTERVAL),
    "STATQ": _level(cmqc.MQIA_STATISTICS_Q, "QMGR", "OFF", "ON"),
    "TRIGDATA": Text(64, cmqc.MQCA_TRIGGER_DATA),
    "TRIGDPTH": Number(1, _NUMBER, 1, cmqc.MQIA_TRIGGER_DEPTH),
    "TRIGMPRI": Number(0, 9, 0, cmqc.MQIA_TRIGGER_MSG_PRIORITY),
    "TRIGTYPE": Choice({"FIRST": 1, "EVERY": 2, "DEPTH": 3, "NONE": 0}, "FIRST", cmqc.MQIA_TRIGGER_TYPE),
}

ATTRIBUTES: dict[str, dict[str, Attribute]] = {
    "QMGR": {
        "DESCR": Text(64, cmqc.MQCA_Q_MGR_DESC),
        "DEADQ": _name(cmqc.MQCA_DEAD_LETTER_Q_NAME),
        "DEFXMITQ": _name(cmqc.MQCA_DEF_XMIT_Q_NAME),
        "MAXMSGL": Number(32_768, _MAX_MESSAGE, 4_194_304, cmqc.MQIA_MAX_MSG_LENGTH),
        "MAXHANDS": Number(0, _NUMBER, 256, cmqc.MQIA_MAX_HANDLES),
        "MAXUMSGS": Number(1, _NUMBER, 10_000, cmqc.MQIA_MAX_UNCOMMITTED_MSGS),
        "CCSID": Number(1, 65_535, 1208, cmqc.MQIA_CODED_CHAR_SET_ID),
        "ACCTMQI": _level(cmqc.MQIA_ACCOUNTING_MQI, "OFF", "ON"),
        "ACCTQ": _level(cmqc.MQIA_ACCOUNTING_Q, "OFF", "ON", "NONE"),
        "AUTHOREV": _event(cmqc.MQIA_AUTHORITY_EVENT),
        "CHLEV": _event(cmqc.MQIA_CHANNEL_EVENT, EXCEPTION=cmqcfc.MQEVR_EXCEPTION),
        "CMDEV": _event(cmqc.MQIA_COMMAND_EVENT, NODISPLAY=cmqcfc.MQEVR_NO_DISPLAY),
        "CONFIGEV": _event(cmqc.MQIA_CONFIGURATION_EVENT),
        "CUSTOM": _CUSTOM,
        "INHIBTEV": _event(cmqc.MQIA_INHIBIT_EVENT),
        "LOCALEV": _event(cmqc.MQIA_LOCAL_EVENT),
        "MARKINT": Number(0, _NUMBER, 5_000, cmqc.MQIA_MSG_MARK_BROWSE_INTERVAL, {"NOLIMIT": -1}),
        "MAXPROPL": Number(0, _MAX_MESSAGE, "NOLIMIT", cmqc.MQIA_MAX_PROPERTIES_LENGTH, {"NOLIMIT": -1}),
        "MONQ": _level(cmqc.MQIA_MONITORING_Q, "OFF", "NONE", "LOW", "MEDIUM", "HIGH"),
        "PERFMEV": _event(cmqc.MQIA_PERFORMANCE_EVENT),
        "REMOTEEV": _event(cmqc.MQIA_REMOTE_EVENT),
        "STATMQI": _level(cmqc.MQIA_STATISTICS_MQI, "OFF", "ON"),
        "STATQ": _level(cmqc.MQIA_STATISTICS_Q, "OFF", "ON", "NONE"),
        "STRSTPEV": _event(cmqc.MQIA_START_STOP_EVENT, "ENABLED"),
        "TREELIFE": Number(0, 604_000, 1_800, cmqc.MQIA_TREE_LIFE_TIME),
        "TRIGINT": Number(0, _NUMBER, _NUMBER, cmqc.MQIA_TRIGGER_INTERVAL),
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
        "BOTHRESH": Number(0, _NUMBER, 0, cmqc.MQIA_BACKOUT_THRESHOLD),
        "BOQNAME": _name(cmqc.MQCA_BACKOUT_REQ_Q_NAME),
        "PROPCTL": _PROPCTL,
        "TRIGGER": Choice(_NO_YES, "NO", cmqc.MQIA_TRIGGER_CONTROL),
        "NPMCLASS": Choice(
            {"NORMAL": cmqc.MQNPM_CLASS_NORMAL, "HIGH": cmqc.MQNPM_CLASS_HIGH}, "NORMAL", cmqc.MQIA_NPM_CLASS
        ),
        **_ANY_QUEUE,
        **_WITHOUT_EFFECT,
    },
    "QALIAS": {
        "DESCR": _QUEUE_DESCR,
        "PUT": _PUT,
        "GET": _GET,
        "DEFPRTY": _DEFPRTY,
        "DEFPSIST": _DEFPSIST,
        "TARGET": _name(cmqc.MQCA_BASE_OBJECT_NAME),
        "TARGTYPE": Choice({"QUEUE": cmqc.MQOT_Q, "TOPIC": cmqc.MQOT_TOPIC}, "QUEUE", cmqc.MQIA_BASE_TYPE),
        "PROPCTL": _PROPCTL,
        "DEFREADA": _DEFREADA,
        **_ANY_QUEUE,
    },
    "QREMOTE": {
        "DESCR": _QUEUE_DESCR,
        "PUT": _PUT,
        "DEFPRTY": _DEFPRTY,
        "DEFPSIST": _DEFPSIST,
        "RNAME": Text(48, cmqc.MQCA_REMOTE_Q_NAME),
        "RQMNAME": Text(48, cmqc.MQCA_REMOTE_Q_MGR_NAME),
        "XMITQ": _name(cmqc.MQCA_XMIT_Q_NAME),
        **_ANY_QUEUE,
    },
    "NAMELIST": {"DESCR": Text(64, cmqc.MQCA_NAMELIST_DESC), "NAMES": Names(cmqc.MQCA_NAMES)},
    #: telemetry channels, CHLTYPE(MQTT)
    "CHANNEL": {
        "BACKLOG": Number(1, 65_535, 4_096),
        "DESCR": Text(64),
        "LOCLADDR": Text(48),
        "MCAUSER": Text(12),
        "PORT": Number(0, 65_535, 1_883),
        "PROTOCOL": Words(("MQTTV5", "MQTTV311", "MQTTV3", "HTTP"), "MQTTV5,MQTTV311,MQTTV3"),
        "SSLCAUTH": Choice(("NEVER", "OPTIONAL", "REQUIRED"), "NEVER"),
        "SSLCIPH": Text(1_024),
        "SSLKEYP": Text(256),
        "SSLKEYR": Text(256),
        "TRPTYPE": _TRPTYPE,
        "USECLTID": Choice(("NO", "YES"), "NO"),
    },
    #: server-connection channels, CHLTYPE(SVRCONN), used by the tests' stand-in for IBM MQ, without HBINT and MCAUSER
    "SVRCONN": {
        "DESCR": Text(64),
        "HBINT": Number(0, 999_999, 300),
        "MAXINST": Number(0, _NUMBER, _NUMBER),
        "MAXINSTC": Number(0, _NUMBER, _NUMBER),
        "MAXMSGL": Number(0, _MAX_MESSAGE, 4_194_304),
        "MCAUSER": Text(64),
        "SHARECNV": Number(0, _NUMBER, 10),
        "SSLCAUTH": Choice(("REQUIRED", "OPTIONAL"), "REQUIRED"),
        "SSLCIPH": Text(32),
        "SSLPEER": Text(1_024),
        "TRPTYPE": _TRPTYPE,
    },
    "TOPIC": {
        "DESCR": Text(64),
        "TOPICSTR": Text(_LONG_TEXT),
        "PUB": _ENABLED_ASPARENT,
        "SUB": _ENABLED_ASPARENT,
        "DEFPSIST": Choice(("ASPARENT", "NO", "YES"), "ASPARENT"),
        "DEFPRTY": Number(0, 9, "ASPARENT", words={"ASPARENT": -2}),
        "DURSUB": _YES_ASPARENT,
        "PMSGDLV": _DELIVERY,
        "NPMSGDLV": _DELIVERY,
        "USEDLQ": _YES_ASPARENT,
        "DEFPRESP": Choice(("ASPARENT", "SYNC", "ASYNC"), "ASPARENT"),
        "PUBSCOPE": _SCOPE,
        "SUBSCOPE": _SCOPE,
        "MDURMDL": _name(),
        "MNDURMDL": _name(),
        "WILDCARD": Choice(("PASSTHRU", "BLOCK"), "PASSTHRU"),
        "CUSTOM": Text(128),
    },
    "SUB": {
        "TOPICSTR": Text(_LONG_TEXT, cmqc.MQCA_TOPIC_STRING),
        "TOPICOBJ": _name(cmqc.MQCA_TOPIC_NAME),
        "DEST": Text(48, cmqcfc.MQCACF_DESTINATION),
        "DESTQMGR": Text(48, cmqcfc.MQCACF_DESTINATION_Q_MGR),
        "DESTCORL": Text(48),
        "USERDATA": Text(_LONG_TEXT, cmqcfc.MQCACF_SUB_USER_DATA),
        "SUBLEVEL": Number(0, 9, 1, cmqcfc.MQIACF_SUB_LEVEL),
        "EXPIRY": Number(0, _NUMBER, "UNLIMITED", cmqcfc.MQIACF_EXPIRY, {"UNLIMITED": cmqc.MQEI_UNLIMITED}),
        "WSCHEMA": Choice({"TOPIC": cmqc.MQWS_TOPIC, "CHAR": cmqc.MQWS_CHAR}, "TOPIC", cmqcfc.MQIACF_WILDCARD_SCHEMA),
        "SUBUSER": Text(12, cmqcfc.MQCACF_SUB_USER_ID),
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
        raise AttributeRefused(f"{keyword} is not an attribute of {kind} that this queue manager has")
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
    #: a number, for which `words` has some values only
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
            raise AttributeRefused(f"{number} is no value of {self.keyword}")
        return str(number)


def names_in(value: Value) -> list[bytes]:
    return [name.encode() for name in str(value).split(",")] if value else []


def _row(keyword: str, attribute: Attribute) -> Selector:
    """Return the selector of an attribute that commands set."""
    number = attribute.number
    if isinstance(attribute, Text):
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
_CREATED = (
    Selector("CRDATE", cmqc.MQCA_CREATION_DATE, length=12),
    Selector("CRTIME", cmqc.MQCA_CREATION_TIME, length=8),
)
_ALTERED = (
    Selector("ALTDATE", cmqc.MQCA_ALTERATION_DATE, length=12),
    Selector("ALTTIME", cmqc.MQCA_ALTERATION_TIME, length=8),
)
_QUEUE = (Selector("QUEUE", cmqc.MQCA_Q_NAME, length=48), Selector("TYPE", cmqc.MQIA_Q_TYPE, QUEUE_TYPES), *_ALTERED)
_LOCAL = (
    *_QUEUE,
    *_CREATED,
    Selector("DEFTYPE", cmqc.MQIA_DEFINITION_TYPE, {"PREDEFINED": 1, "PERMDYN": 2, "TEMPDYN": 3}),
    Selector("CURDEPTH", cmqc.MQIA_CURRENT_Q_DEPTH),
    Selector("IPPROCS", cmqc.MQIA_OPEN_INPUT_COUNT),
    Selector("OPPROCS", cmqc.MQIA_OPEN_OUTPUT_COUNT),
)
#: Attributes by kind of object that no command sets.
_FIXED: dict[str, tuple[Selector, ...]] = {
    "QMGR": (
        Selector("QMNAME", cmqc.MQCA_Q_MGR_NAME, length=48),
        Selector("QMID", cmqc.MQCA_Q_MGR_IDENTIFIER, length=48),
        Selector("COMMANDQ", cmqc.MQCA_COMMAND_INPUT_Q_NAME, length=48, fixed="SYSTEM.ADMIN.COMMAND.QUEUE"),
        Selector("CMDLEVEL", cmqc.MQIA_COMMAND_LEVEL, fixed=cmqc.MQCMDL_LEVEL_940),
        Selector("PLATFORM", cmqc.MQIA_PLATFORM, {"UNIX": cmqc.MQPL_UNIX}, fixed=cmqc.MQPL_UNIX),
        Selector("MAXPRTY", cmqc.MQIA_MAX_PRIORITY, fixed=9),
        Selector("SYNCPT", cmqc.MQIA_SYNCPOINT, fixed=cmqc.MQSP_AVAILABLE),
        Selector("CHLAUTH", cmqc.MQIA_CHLAUTH_RECORDS, {"ENABLED": cmqcfc.MQCHLA_ENABLED}, fixed=cmqcfc.MQCHLA_ENABLED),
        Selector("CONNAUTH", cmqc.MQCA_CONN_AUTH, length=48, fixed="SYSTEM.DEFAULT.AUTHINFO.IDPWOS"),
        *_CREATED,
        *_ALTERED,
    ),
    "QLOCAL": _LOCAL,
    "QMODEL": _LOCAL,
    "QALIAS": _QUEUE,
    "QREMOTE": _QUEUE,
    "NAMELIST": (
        Selector("NAMELIST", cmqc.MQCA_NAMELIST_NAME, length=48),
        Selector("NLTYPE", cmqc.MQIA_NAMELIST_TYPE, fixed=cmqc.MQNT_NONE),
        Selector("NAMCOUNT", cmqc.MQIA_NAME_COUNT),
        *_ALTERED,
    ),
    "SUB": (
        Selector("SUB", cmqcfc.MQCACF_SUB_NAME, length=VARIABLE),
        Selector("SUBID", cmqcfc.MQBACF_SUB_ID, length=24, binary=True),
        Selector("DESTCORL", cmqcfc.MQBACF_DESTINATION_CORREL_ID, length=24, binary=True),
        Selector(
            "DESTCLAS", cmqcfc.MQIACF_DESTINATION_CLASS, {"MANAGED": cmqc.MQDC_MANAGED, "PROVIDED": cmqc.MQDC_PROVIDED}
        ),
        Selector(
            "DURABLE", cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, {"YES": cmqc.MQSUB_DURABLE_YES, "NO": cmqc.MQSUB_DURABLE_NO}
        ),
        Selector("SUBTYPE", cmqcfc.MQIACF_SUB_TYPE, {"API": 1, "ADMIN": 2, "PROXY": 3}),
        Selector("SELECTOR", cmqcfc.MQCACF_SUB_SELECTOR, length=VARIABLE),
        Selector("VARUSER", cmqcfc.MQIACF_VARIABLE_USER_ID, fixed=cmqc.MQVU_ANY_USER),
        Selector("SUBSCOPE", cmqcfc.MQIACF_SUBSCRIPTION_SCOPE, fixed=cmqc.MQSCOPE_ALL),
        Selector("REQONLY", cmqcfc.MQIACF_REQUEST_ONLY, fixed=cmqc.MQRU_PUBLISH_ALL),
    ),
}
#: kind of object -> its attributes by PCF selector. The tests' stand-in for IBM MQ adds more.
SELECTORS: dict[str, dict[int, Selector]] = {
    kind: {row.number: row for row in rows}
    | {one.number: _row(keyword, one) for keyword, one in ATTRIBUTES[kind].items() if one.number}
    for kind, rows in _FIXED.items()
}


def selector(kind: str, number: int) -> Selector | None:
    """Return the attribute with this PCF selector of a kind of object (QLOCAL, QMGR, TOPIC …), or None."""
    return SELECTORS[kind].get(number)
