"""Attributes of objects that the embedded queue manager lacks, because they have no effect there.

The stand-in adds them to its tables for DEFINE, ALTER and DISPLAY, and for MQINQ and PCF commands.
"""

from bridge.mq.embedded.attributes import (
    ATTRIBUTES,
    BASE_TOPIC,
    QUEUE_TYPES,
    SELECTORS,
    VARIABLE,
    Attribute,
    Choice,
    Number,
    Selector,
    TextAttribute,
    Value,
    selectors,
)
from bridge.mq.embedded.mqsc import display
from tests.ibm_standin import cmqc, cmqcfc

__all__ = ["SELECTORS"]

_NUMBER = 999_999_999
_MAX_MESSAGE = 104_857_600
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


def _name(number: int = 0) -> TextAttribute:
    return TextAttribute(48, number, name=True)


def _event(number: int, default: str = "DISABLED", **more: int) -> Choice:
    words = {"DISABLED": cmqcfc.MQEVR_DISABLED, "ENABLED": cmqcfc.MQEVR_ENABLED}
    ordered = dict(sorted(words.items(), key=lambda row: row[0] != default))
    return Choice(ordered | more, default, number)


def _level(number: int, *words: str) -> Choice:
    return Choice({word: _LEVELS[word] for word in words}, words[0], number)


_CUSTOM = TextAttribute(128, cmqc.MQCA_CUSTOM)
_DEFREADA = Choice({"NO": 0, "YES": 1, "DISABLED": 2}, "NO", cmqc.MQIA_DEF_READ_AHEAD)
_PROPCTL = Choice({"COMPAT": 0, "ALL": 2, "FORCE": 3, "NONE": 1, "V6COMPAT": 4}, "COMPAT", cmqc.MQIA_PROPERTY_CONTROL)
_SCOPE = Choice(("ASPARENT", "ALL", "QMGR"), "ASPARENT")
#: Attributes of all kinds of queues.
_ANY_QUEUE: dict[str, Attribute] = {
    "DEFBIND": Choice({"OPEN": 0, "NOTFIXED": 1, "GROUP": 2}, "OPEN", cmqc.MQIA_DEF_BIND),
    "DEFPRESP": Choice({"SYNC": 1, "ASYNC": 2}, "SYNC", cmqc.MQIA_DEF_PUT_RESPONSE_TYPE),
    "SCOPE": Choice({"QMGR": 1}, "QMGR", cmqc.MQIA_SCOPE),
    "CUSTOM": _CUSTOM,
}

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
    "TRIGDATA": TextAttribute(64, cmqc.MQCA_TRIGGER_DATA),
    "TRIGDPTH": Number(1, _NUMBER, 1, cmqc.MQIA_TRIGGER_DEPTH),
    "TRIGMPRI": Number(0, 9, 0, cmqc.MQIA_TRIGGER_MSG_PRIORITY),
    "TRIGTYPE": Choice({"FIRST": 1, "EVERY": 2, "DEPTH": 3, "NONE": 0}, "FIRST", cmqc.MQIA_TRIGGER_TYPE),
}
_LOCAL_QUEUE: dict[str, Attribute] = {
    "BOTHRESH": Number(0, _NUMBER, 0, cmqc.MQIA_BACKOUT_THRESHOLD),
    "BOQNAME": _name(cmqc.MQCA_BACKOUT_REQ_Q_NAME),
    "PROPCTL": _PROPCTL,
    "TRIGGER": Choice(_NO_YES, "NO", cmqc.MQIA_TRIGGER_CONTROL),
    "NPMCLASS": Choice(
        {"NORMAL": cmqc.MQNPM_CLASS_NORMAL, "HIGH": cmqc.MQNPM_CLASS_HIGH}, "NORMAL", cmqc.MQIA_NPM_CLASS
    ),
    **_ANY_QUEUE,
    **_WITHOUT_EFFECT,
}
_ADDED: dict[str, dict[str, Attribute]] = {
    "QMGR": {
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
    "QLOCAL": _LOCAL_QUEUE,
    "QMODEL": _LOCAL_QUEUE,
    "QALIAS": {"PROPCTL": _PROPCTL, "DEFREADA": _DEFREADA, **_ANY_QUEUE},
    "QREMOTE": _ANY_QUEUE,
    "TOPIC": {
        "DEFPRESP": Choice(("ASPARENT", "SYNC", "ASYNC"), "ASPARENT"),
        "PUBSCOPE": _SCOPE,
        "SUBSCOPE": _SCOPE,
        "MDURMDL": _name(),
        "MNDURMDL": _name(),
        "CUSTOM": TextAttribute(128),
    },
}
for _kind, _attributes in _ADDED.items():
    ATTRIBUTES[_kind].update(_attributes)
BASE_TOPIC.update({"DEFPRESP": "SYNC", "PUBSCOPE": "ALL", "SUBSCOPE": "ALL"})
for _noun in ("QMGR", "QLOCAL", "QMODEL", "QALIAS", "QREMOTE", "TOPIC"):
    display.add_keywords(_noun, _ADDED[_noun])
display.add_keywords("QUEUE", _LOCAL_QUEUE)
display.add_keywords("TPSTATUS", BASE_TOPIC)


def _number(keyword: str, number: int, **words: int) -> Selector:
    return Selector(keyword, number, words)


def _text(keyword: str, number: int, length: int) -> Selector:
    return Selector(keyword, number, length=length)


def _always(keyword: str, number: int, value: Value, length: int = 0) -> Selector:
    return Selector(keyword, number, length=length, fixed=value)


_CREATED = (
    Selector("CRDATE", cmqc.MQCA_CREATION_DATE, length=12),
    Selector("CRTIME", cmqc.MQCA_CREATION_TIME, length=8),
)
_ALTERED = (
    Selector("ALTDATE", cmqc.MQCA_ALTERATION_DATE, length=12),
    Selector("ALTTIME", cmqc.MQCA_ALTERATION_TIME, length=8),
)
_ANY = (Selector("QUEUE", cmqc.MQCA_Q_NAME, length=48), Selector("TYPE", cmqc.MQIA_Q_TYPE, QUEUE_TYPES), *_ALTERED)
_STORED = (
    *_ANY,
    *_CREATED,
    Selector("DEFTYPE", cmqc.MQIA_DEFINITION_TYPE, {"PREDEFINED": 1, "PERMDYN": 2, "TEMPDYN": 3}),
    Selector("CURDEPTH", cmqc.MQIA_CURRENT_Q_DEPTH),
    Selector("IPPROCS", cmqc.MQIA_OPEN_INPUT_COUNT),
    Selector("OPPROCS", cmqc.MQIA_OPEN_OUTPUT_COUNT),
)
#: Attributes by kind of object that commands cannot set.
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
    "QLOCAL": _STORED,
    "QMODEL": _STORED,
    "QALIAS": _ANY,
    "QREMOTE": _ANY,
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
for _kind, _rows in _FIXED.items():
    SELECTORS[_kind] = selectors(_kind, *_rows)

_STAMPS = [SELECTORS["QLOCAL"][number] for number in (cmqc.MQCA_ALTERATION_DATE, cmqc.MQCA_ALTERATION_TIME)]
_DELIVERY_CHOICES = {
    "ASPARENT": cmqc.MQDLV_AS_PARENT,
    "ALL": cmqc.MQDLV_ALL,
    "ALLDUR": cmqc.MQDLV_ALL_DUR,
    "ALLAVAIL": cmqc.MQDLV_ALL_AVAIL,
}
_SCOPES = {"ALL": cmqc.MQSCOPE_ALL, "ASPARENT": cmqc.MQSCOPE_AS_PARENT, "QMGR": cmqc.MQSCOPE_QMGR}

_QUEUE = (
    _always("CLUSTER", cmqc.MQCA_CLUSTER_NAME, "", 48),
    _always("CLUSNL", cmqc.MQCA_CLUSTER_NAMELIST, "", 48),
    _always("CLWLPRTY", cmqc.MQIA_CLWL_Q_PRIORITY, 0),
    _always("CLWLRANK", cmqc.MQIA_CLWL_Q_RANK, 0),
)
_LOCAL = (
    _always("CLWLUSEQ", cmqc.MQIA_CLWL_USEQ, cmqc.MQMON_Q_MGR),
    _always("IMGRCOVQ", cmqc.MQIA_MEDIA_IMAGE_RECOVER_Q, cmqc.MQIMGRCOV_AS_Q_MGR),
    _always("MAXFSIZE", cmqc.MQIA_MAX_Q_FILE_SIZE, cmqc.MQQFS_DEFAULT),
    _always("STREAMQ", cmqc.MQCA_STREAM_QUEUE_NAME, "", 48),
    _always("STRMQOS", cmqc.MQIA_STREAM_QUEUE_QOS, cmqc.MQST_BEST_EFFORT),
)
_QUEUE_MANAGER = (
    _always("VERSION", cmqc.MQCA_VERSION, "09040000", 8),
    _always("DISTL", cmqc.MQIA_DIST_LISTS, cmqc.MQDL_NOT_SUPPORTED),
    _always("PSMODE", cmqc.MQIA_PUBSUB_MODE, cmqc.MQPSM_ENABLED),
    _always("REPOS", cmqc.MQCA_REPOSITORY_NAME, "", 48),
    _always("REPOSNL", cmqc.MQCA_REPOSITORY_NAMELIST, "", 48),
    _always("CHAD", cmqc.MQIA_CHANNEL_AUTO_DEF, 0),
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
)
_TOPIC = (
    _text("TOPIC", cmqc.MQCA_TOPIC_NAME, 48),
    _number("TYPE", cmqc.MQIA_TOPIC_TYPE, LOCAL=cmqc.MQTOPT_LOCAL),
    _text("TOPICSTR", cmqc.MQCA_TOPIC_STRING, VARIABLE),
    _text("DESCR", cmqc.MQCA_TOPIC_DESC, 64),
    _number("PUB", cmqc.MQIA_INHIBIT_PUB, ASPARENT=0, DISABLED=1, ENABLED=2),
    _number("SUB", cmqc.MQIA_INHIBIT_SUB, ASPARENT=0, DISABLED=1, ENABLED=2),
    _number("DEFPSIST", cmqc.MQIA_TOPIC_DEF_PERSISTENCE, ASPARENT=cmqc.MQPER_PERSISTENCE_AS_PARENT, NO=0, YES=1),
    Selector("DEFPRTY", cmqc.MQIA_DEF_PRIORITY, {"ASPARENT": cmqc.MQPRI_PRIORITY_AS_PARENT}, is_number=True),
    _number("DEFPRESP", cmqc.MQIA_DEF_PUT_RESPONSE_TYPE, ASPARENT=0, SYNC=1, ASYNC=2),
    _number("DURSUB", cmqc.MQIA_DURABLE_SUB, ASPARENT=0, YES=1, NO=2),
    Selector("PMSGDLV", cmqc.MQIA_PM_DELIVERY, _DELIVERY_CHOICES),
    Selector("NPMSGDLV", cmqc.MQIA_NPM_DELIVERY, _DELIVERY_CHOICES),
    _number("USEDLQ", cmqc.MQIA_USE_DEAD_LETTER_Q, ASPARENT=0, NO=1, YES=2),
    Selector("PUBSCOPE", cmqc.MQIA_PUB_SCOPE, _SCOPES),
    Selector("SUBSCOPE", cmqc.MQIA_SUB_SCOPE, _SCOPES),
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
        attribute
        for attribute in _TOPIC
        if attribute.keyword in ATTRIBUTES["TOPIC"] and attribute.keyword not in ("TOPICSTR", "DESCR", "CUSTOM")
    ),
)

for _kind, _selectors in {
    "QMGR": _QUEUE_MANAGER,
    "QLOCAL": (*_QUEUE, *_LOCAL),
    "QMODEL": (*_QUEUE, *_LOCAL),
    "QALIAS": _QUEUE,
    "QREMOTE": _QUEUE,
    "TOPIC": _TOPIC,
    "TPSTATUS": _TOPIC_STATUS,
}.items():
    SELECTORS.setdefault(_kind, {}).update({row.number: row for row in _selectors})
SELECTORS["QUEUE"] = SELECTORS["QLOCAL"] | SELECTORS["QALIAS"] | SELECTORS["QREMOTE"]
