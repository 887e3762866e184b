"""The authorities that there are, and the types of object that they are about: their words in MQSC, their PCF numbers.

Source: IBM MQ documentation, "SET AUTHREC", "Set Authority Record".
"""

from __future__ import annotations

from bridge.wire import cmqc, cmqcfc

#: AUTHADD and AUTHRMV of SET AUTHREC: what applications ask for by the MQI
MQI = {
    "ALTUSR": cmqcfc.MQAUTH_ALT_USER_AUTHORITY,
    "BROWSE": cmqcfc.MQAUTH_BROWSE,
    "CONNECT": cmqcfc.MQAUTH_CONNECT,
    "GET": cmqcfc.MQAUTH_INPUT,
    "INQ": cmqcfc.MQAUTH_INQUIRE,
    "PASSALL": cmqcfc.MQAUTH_PASS_ALL_CONTEXT,
    "PASSID": cmqcfc.MQAUTH_PASS_IDENTITY_CONTEXT,
    "PUB": cmqcfc.MQAUTH_PUBLISH,
    "PUT": cmqcfc.MQAUTH_OUTPUT,
    "RESUME": cmqcfc.MQAUTH_RESUME,
    "SET": cmqcfc.MQAUTH_SET,
    "SETALL": cmqcfc.MQAUTH_SET_ALL_CONTEXT,
    "SETID": cmqcfc.MQAUTH_SET_IDENTITY_CONTEXT,
    "SUB": cmqcfc.MQAUTH_SUBSCRIBE,
}
#: by commands
ADMIN = {
    "CHG": cmqcfc.MQAUTH_CHANGE,
    "CLR": cmqcfc.MQAUTH_CLEAR,
    "CTRL": cmqcfc.MQAUTH_CONTROL,
    "CTRLX": cmqcfc.MQAUTH_CONTROL_EXTENDED,
    "DLT": cmqcfc.MQAUTH_DELETE,
    "DSP": cmqcfc.MQAUTH_DISPLAY,
}
WORDS = MQI | ADMIN | {"CRT": cmqcfc.MQAUTH_CREATE, "SYSTEM": cmqcfc.MQAUTH_SYSTEM}
NUMBERS = {number: word for word, number in WORDS.items()}
#: words that stand for many, and their numbers
COLLECTIVE = {
    "ALL": (cmqcfc.MQAUTH_ALL, frozenset((*MQI.values(), *ADMIN.values()))),
    "ALLADM": (cmqcfc.MQAUTH_ALL_ADMIN, frozenset(ADMIN.values())),
    "ALLMQI": (cmqcfc.MQAUTH_ALL_MQI, frozenset(MQI.values())),
    "NONE": (cmqcfc.MQAUTH_NONE, frozenset[int]()),
}
ALL = COLLECTIVE["ALL"][1]

#: OBJTYPE, and the MQOT_ that it is
OBJECT_TYPES = {
    "AUTHINFO": cmqc.MQOT_AUTH_INFO,
    "CHANNEL": cmqc.MQOT_CHANNEL,
    "CLNTCONN": cmqc.MQOT_CLNTCONN_CHANNEL,
    "COMMINFO": cmqc.MQOT_COMM_INFO,
    "LISTENER": cmqc.MQOT_LISTENER,
    "NAMELIST": cmqc.MQOT_NAMELIST,
    "PROCESS": cmqc.MQOT_PROCESS,
    "QMGR": cmqc.MQOT_Q_MGR,
    "QUEUE": cmqc.MQOT_Q,
    "RQMNAME": cmqc.MQOT_REMOTE_Q_MGR_NAME,
    "SERVICE": cmqc.MQOT_SERVICE,
    "TOPIC": cmqc.MQOT_TOPIC,
}
#: PRINCIPAL and GROUP, and the MQZAET_ that each is
ENTITY_TYPES = {"PRINCIPAL": cmqc.MQZAET_PRINCIPAL, "GROUP": cmqc.MQZAET_GROUP}


def spread(number: int) -> frozenset[int] | None:
    """Return the authorities that a PCF number stands for, one or many; None for a number that is no authority."""
    for collective, authorities in COLLECTIVE.values():
        if number == collective:
            return authorities
    return frozenset((number,)) if number in NUMBERS else None
