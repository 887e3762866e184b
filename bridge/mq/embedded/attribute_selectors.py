"""Attributes by number: the selectors of MQINQ, MQSET and PCF beside the MQSC keywords and words of `attributes`.

One table says for each attribute its selector and what MQSC's words are as numbers, so that a rule about an attribute
is written once, wherever it is asked for or set. Source: IBM MQ documentation, "Change, Copy, and Create Queue",
"Inquire Queue Manager (Response)" and the like, and "MQINQ".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bridge.mq.embedded.attributes import ATTRIBUTES, AttributeRefused, Value
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFBS, MQCFIN, MQCFST, PCFParameter, string_list

#: Length of a text that is as long as its value.
VARIABLE = -1


@dataclass(frozen=True)
class Selector:
    """One attribute: its MQSC keyword and its number."""

    keyword: str
    number: int
    #: what MQSC's words are as numbers; a number that has none stands for itself
    words: Mapping[str, int] = field(default_factory=dict)
    #: bytes of a text or byte string, VARIABLE, or 0 of an integer
    length: int = 0
    #: a byte string, hexadecimal in MQSC
    binary: bool = False
    #: it is always that, and can be set to nothing else
    fixed: Value | None = None
    #: a list of names, each of that length
    listed: bool = False

    def integer(self, value: Value) -> int:
        """Return the number of a value."""
        return self.words[value] if isinstance(value, str) else value

    def characters(self, value: Value) -> bytes:
        """Return the characters of a text, or of each name, with blanks up to the length of the attribute."""
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
        """Return a number as MQSC writes it. Raises AttributeRefused for a number that is no value of the attribute."""
        for word, value in self.words.items():
            if value == number:
                return word
        if self.words and self.keyword not in _NUMBERS_WITH_WORDS:
            raise AttributeRefused(f"{number} is no value of {self.keyword}")
        return str(number)


def _names(value: Value) -> list[bytes]:
    return [name.encode() for name in str(value).split(",")] if value else []


#: Attributes that are numbers, a few of which MQSC calls by a word.
_NUMBERS_WITH_WORDS = frozenset(("DEFPRTY", "EXPIRY", "MARKINT", "MAXPROPL"))


def _number(keyword: str, number: int, **words: int) -> Selector:
    return Selector(keyword, number, words)


def _text(keyword: str, number: int, length: int) -> Selector:
    return Selector(keyword, number, length=length)


def _always(keyword: str, number: int, value: Value, length: int = 0) -> Selector:
    return Selector(keyword, number, length=length, fixed=value)


_NO_YES = {"NO": 0, "YES": 1}
_EVENT = {"DISABLED": cmqcfc.MQEVR_DISABLED, "ENABLED": cmqcfc.MQEVR_ENABLED}
_MONITORING = {
    "OFF": cmqc.MQMON_OFF,
    "ON": cmqc.MQMON_ON,
    "QMGR": cmqc.MQMON_Q_MGR,
    "NONE": cmqc.MQMON_NONE,
    "LOW": cmqc.MQMON_LOW,
    "MEDIUM": cmqc.MQMON_MEDIUM,
    "HIGH": cmqc.MQMON_HIGH,
}
_PARENT = cmqc.MQPRI_PRIORITY_AS_PARENT
_DELIVERY = {
    "ASPARENT": cmqc.MQDLV_AS_PARENT,
    "ALL": cmqc.MQDLV_ALL,
    "ALLDUR": cmqc.MQDLV_ALL_DUR,
    "ALLAVAIL": cmqc.MQDLV_ALL_AVAIL,
}
_SCOPE = {"ALL": cmqc.MQSCOPE_ALL, "ASPARENT": cmqc.MQSCOPE_AS_PARENT, "QMGR": cmqc.MQSCOPE_QMGR}
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
    _always("CLUSTER", cmqc.MQCA_CLUSTER_NAME, "", 48),
    _always("CLUSNL", cmqc.MQCA_CLUSTER_NAMELIST, "", 48),
    _always("CLWLPRTY", cmqc.MQIA_CLWL_Q_PRIORITY, 0),
    _always("CLWLRANK", cmqc.MQIA_CLWL_Q_RANK, 0),
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
    _always("CLWLUSEQ", cmqc.MQIA_CLWL_USEQ, cmqc.MQMON_Q_MGR),
    _always("IMGRCOVQ", cmqc.MQIA_MEDIA_IMAGE_RECOVER_Q, cmqc.MQIMGRCOV_AS_Q_MGR),
    _always("MAXFSIZE", cmqc.MQIA_MAX_Q_FILE_SIZE, cmqc.MQQFS_DEFAULT),
    _always("STREAMQ", cmqc.MQCA_STREAM_QUEUE_NAME, "", 48),
    _always("STRMQOS", cmqc.MQIA_STREAM_QUEUE_QOS, cmqc.MQST_BEST_EFFORT),
    Selector("ACCTQ", cmqc.MQIA_ACCOUNTING_Q, _MONITORING),
    Selector("MONQ", cmqc.MQIA_MONITORING_Q, _MONITORING),
    Selector("STATQ", cmqc.MQIA_STATISTICS_Q, _MONITORING),
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
    Selector("ACCTMQI", cmqc.MQIA_ACCOUNTING_MQI, _MONITORING),
    Selector("ACCTQ", cmqc.MQIA_ACCOUNTING_Q, _MONITORING),
    Selector("MONQ", cmqc.MQIA_MONITORING_Q, _MONITORING),
    Selector("STATMQI", cmqc.MQIA_STATISTICS_MQI, _MONITORING),
    Selector("STATQ", cmqc.MQIA_STATISTICS_Q, _MONITORING),
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
    _always("VERSION", cmqc.MQCA_VERSION, "09040000", 8),
    _always("PLATFORM", cmqc.MQIA_PLATFORM, cmqc.MQPL_UNIX),
    _always("MAXPRTY", cmqc.MQIA_MAX_PRIORITY, 9),
    _always("SYNCPT", cmqc.MQIA_SYNCPOINT, cmqc.MQSP_AVAILABLE),
    _always("DISTL", cmqc.MQIA_DIST_LISTS, cmqc.MQDL_NOT_SUPPORTED),
    _always("PSMODE", cmqc.MQIA_PUBSUB_MODE, cmqc.MQPSM_ENABLED),
    _always("REPOS", cmqc.MQCA_REPOSITORY_NAME, "", 48),
    _always("REPOSNL", cmqc.MQCA_REPOSITORY_NAMELIST, "", 48),
    _always("CHAD", cmqc.MQIA_CHANNEL_AUTO_DEF, 0),
    Selector("CHLAUTH", cmqc.MQIA_CHLAUTH_RECORDS, {"ENABLED": cmqcfc.MQCHLA_ENABLED}, fixed=cmqcfc.MQCHLA_ENABLED),
    _always("CONNAUTH", cmqc.MQCA_CONN_AUTH, "SYSTEM.DEFAULT.AUTHINFO.IDPWOS", 48),
    # There are no channels, clusters, exits, traces and logs of this queue manager to say more of.
    _always("ACCTINT", cmqc.MQIA_ACCOUNTING_INTERVAL, 1_800),
    _always("ACTIVREC", cmqc.MQIA_ACTIVITY_RECORDING, cmqc.MQMON_OFF),
    _always("ACTVTRC", cmqc.MQIA_ACTIVITY_TRACE, cmqc.MQMON_OFF),
    _always("ADVCAP", cmqc.MQIA_ADVANCED_CAPABILITY, cmqc.MQCAP_NOT_SUPPORTED),
    _always("CERTLABL", cmqc.MQCA_CERT_LABEL, "", 64),
    _always("CHADEXIT", cmqc.MQCA_CHANNEL_AUTO_DEF_EXIT, "", 128),
    _always("CLWLDATA", cmqc.MQCA_CLUSTER_WORKLOAD_DATA, "", 32),
    _always("CLWLEXIT", cmqc.MQCA_CLUSTER_WORKLOAD_EXIT, "", 128),
    _always("LOGGEREV", cmqc.MQIA_LOGGER_EVENT, cmqcfc.MQEVR_DISABLED),
    _always("MONCHL", cmqc.MQIA_MONITORING_CHANNEL, cmqc.MQMON_OFF),
    _always("PARENT", cmqc.MQCA_PARENT, "", 48),
    _always("ROUTEREC", cmqc.MQIA_TRACE_ROUTE_RECORDING, cmqc.MQMON_OFF),
    _always("SPLCAP", cmqc.MQIA_PROT_POLICY_CAPABILITY, cmqc.MQCAP_NOT_SUPPORTED),
    _always("SSLEV", cmqc.MQIA_SSL_EVENT, cmqcfc.MQEVR_DISABLED),
    _always("SSLKEYR", cmqc.MQCA_SSL_KEY_REPOSITORY, "", 256),
    _always("STATCHL", cmqc.MQIA_STATISTICS_CHANNEL, cmqc.MQMON_OFF),
    _always("STATINT", cmqc.MQIA_STATISTICS_INTERVAL, 1_800),
    _always("XRCAP", cmqc.MQIA_XR_CAPABILITY, cmqc.MQCAP_SUPPORTED),
    *_CREATED,
    *_STAMPS,
)
_TOPIC = (
    _text("TOPIC", cmqc.MQCA_TOPIC_NAME, 48),
    _number("TYPE", cmqc.MQIA_TOPIC_TYPE, LOCAL=cmqc.MQTOPT_LOCAL),
    _text("TOPICSTR", cmqc.MQCA_TOPIC_STRING, VARIABLE),
    _text("DESCR", cmqc.MQCA_TOPIC_DESC, 64),
    _number("PUB", cmqc.MQIA_INHIBIT_PUB, ASPARENT=0, DISABLED=1, ENABLED=2),
    _number("SUB", cmqc.MQIA_INHIBIT_SUB, ASPARENT=0, DISABLED=1, ENABLED=2),
    _number("DEFPSIST", cmqc.MQIA_TOPIC_DEF_PERSISTENCE, ASPARENT=cmqc.MQPER_PERSISTENCE_AS_PARENT, NO=0, YES=1),
    _number("DEFPRTY", cmqc.MQIA_DEF_PRIORITY, ASPARENT=_PARENT),
    _number("DEFPRESP", cmqc.MQIA_DEF_PUT_RESPONSE_TYPE, ASPARENT=0, SYNC=1, ASYNC=2),
    _number("DURSUB", cmqc.MQIA_DURABLE_SUB, ASPARENT=0, YES=1, NO=2),
    Selector("PMSGDLV", cmqc.MQIA_PM_DELIVERY, _DELIVERY),
    Selector("NPMSGDLV", cmqc.MQIA_NPM_DELIVERY, _DELIVERY),
    _number("USEDLQ", cmqc.MQIA_USE_DEAD_LETTER_Q, ASPARENT=0, NO=1, YES=2),
    Selector("PUBSCOPE", cmqc.MQIA_PUB_SCOPE, _SCOPE),
    Selector("SUBSCOPE", cmqc.MQIA_SUB_SCOPE, _SCOPE),
    _number("WILDCARD", cmqc.MQIA_WILDCARD_OPERATION, BLOCK=cmqc.MQTA_BLOCK, PASSTHRU=cmqc.MQTA_PASSTHRU),
    _text("MDURMDL", cmqc.MQCA_MODEL_DURABLE_Q, 48),
    _text("MNDURMDL", cmqc.MQCA_MODEL_NON_DURABLE_Q, 48),
    _text("CUSTOM", cmqc.MQCA_CUSTOM, 128),
    _always("CLUSTER", cmqc.MQCA_CLUSTER_NAME, "", 48),
    _always("PROXYSUB", cmqc.MQIA_PROXY_SUB, cmqc.MQTA_PROXY_SUB_FIRSTUSE),
    *_STAMPS,
)
_TOPIC_STATUS = (
    _text("TPSTATUS", cmqc.MQCA_TOPIC_STRING, VARIABLE),
    _text("ADMIN", cmqc.MQCA_ADMIN_TOPIC_NAME, 48),
    _number("RETAINED", cmqcfc.MQIACF_RETAINED_PUBLICATION, NO=cmqcfc.MQQSO_NO, YES=cmqcfc.MQQSO_YES),
    _number("SUBCOUNT", cmqc.MQIA_SUB_COUNT),
    _always("PUBCOUNT", cmqc.MQIA_PUB_COUNT, 0),
    *(
        one
        for one in _TOPIC
        if one.keyword in ATTRIBUTES["TOPIC"] and one.keyword not in ("TOPICSTR", "DESCR", "CUSTOM")
    ),
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

#: kind of object -> its attributes
SELECTORS: dict[str, tuple[Selector, ...]] = {
    "QMGR": _QUEUE_MANAGER,
    "QLOCAL": (*_QUEUE, *_LOCAL),
    "QMODEL": (*_QUEUE, *_LOCAL),
    "QALIAS": (*_QUEUE, *_ALIAS),
    "QREMOTE": (*_QUEUE, *_REMOTE),
    "QUEUE": (*_QUEUE, *_LOCAL, *_ALIAS, *_REMOTE),
    "NAMELIST": _NAMELIST,
    "TOPIC": _TOPIC,
    "TPSTATUS": _TOPIC_STATUS,
    "SUB": _SUBSCRIPTION,
}
_BY_NUMBER = {kind: {one.number: one for one in row} for kind, row in SELECTORS.items()}


def selector(kind: str, number: int) -> Selector | None:
    """Return the attribute with a number, of a kind of object (QLOCAL, QMGR, TOPIC …); None where the kind has none such."""
    return _BY_NUMBER[kind].get(number)


def values(kind: str, shown: Mapping[str, Value], *, wanted: Iterable[int] | None = None) -> dict[int, PCFParameter]:
    """Return the attributes that an object shows under their MQSC keywords, as PCF parameters by number.

    `wanted` restricts them; an attribute that the object has not (CURDEPTH of an alias) is left out.
    """
    row = SELECTORS[kind] if wanted is None else [_BY_NUMBER[kind][number] for number in wanted]
    found: dict[int, PCFParameter] = {}
    for one in row:
        value = shown.get(one.keyword, one.fixed)
        if value is not None:
            found[one.number] = one.parameter(value)
    return found
