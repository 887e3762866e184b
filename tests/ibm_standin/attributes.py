"""Attributes of objects that the bridge does not inquire: of topics, and constant ones of queues and the queue manager.

The stand-in adds them to the table of the embedded queue manager, from which MQINQ and PCF commands are answered.
"""

from bridge.mq.embedded.attributes import ATTRIBUTES, SELECTORS, VARIABLE, Selector, Value
from tests.ibm_standin import cmqc, cmqcfc

__all__ = ["SELECTORS"]


def _number(keyword: str, number: int, **words: int) -> Selector:
    return Selector(keyword, number, words)


def _text(keyword: str, number: int, length: int) -> Selector:
    return Selector(keyword, number, length=length)


def _always(keyword: str, number: int, value: Value, length: int = 0) -> Selector:
    return Selector(keyword, number, length=length, fixed=value)


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
        one
        for one in _TOPIC
        if one.keyword in ATTRIBUTES["TOPIC"] and one.keyword not in ("TOPICSTR", "DESCR", "CUSTOM")
    ),
)

for _kind, _rows in {
    "QMGR": _QUEUE_MANAGER,
    "QLOCAL": (*_QUEUE, *_LOCAL),
    "QMODEL": (*_QUEUE, *_LOCAL),
    "QALIAS": _QUEUE,
    "QREMOTE": _QUEUE,
    "TOPIC": _TOPIC,
    "TPSTATUS": _TOPIC_STATUS,
}.items():
    SELECTORS.setdefault(_kind, {}).update({row.number: row for row in _rows})
SELECTORS["QUEUE"] = SELECTORS["QLOCAL"] | SELECTORS["QALIAS"] | SELECTORS["QREMOTE"]
