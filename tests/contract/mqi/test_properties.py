"""Message handles and properties, on the real packages."""

from __future__ import annotations

import pytest

from tests.helpers.client_programs import Manager

#: name, type, value
PROPERTIES = [
    ("boolean", "MQTYPE_BOOLEAN", True),
    ("bytes", "MQTYPE_BYTE_STRING", b"\x00\x01\xff"),
    ("int8", "MQTYPE_INT8", -100),
    ("int16", "MQTYPE_INT16", -30_000),
    ("int32", "MQTYPE_INT32", -2_000_000_000),
    ("int64", "MQTYPE_INT64", -9_000_000_000_000_000_000),
    ("float32", "MQTYPE_FLOAT32", 1.5),
    ("float64", "MQTYPE_FLOAT64", 1e300),
    ("string", "MQTYPE_STRING", "Grüße <&>"),
]

PUT = """
handle = mq.MessageHandle(qmgr) if package == 'ibmmq' else mq.MessageHandle(qmgr, mq.CMHO())
for name, kind, value in properties:
    length = len(value) if isinstance(value, bytes) else len(value.encode()) if isinstance(value, str) else 0
    handle.properties.set(name.encode(), value, property_type=getattr(CMQC, kind), value_length=length)
def put(handle, data=b'data', **options):
    pmo = mq.PMO(Version=CMQC.MQPMO_VERSION_3, OriginalMsgHandle=handle.msg_handle)
    mq.Queue(qmgr, queue).put(data, mq.MD(), pmo)
def get(options=CMQC.MQGMO_PROPERTIES_IN_HANDLE):
    handle = mq.MessageHandle(qmgr) if package == 'ibmmq' else mq.MessageHandle(qmgr, mq.CMHO())
    gmo = mq.GMO(Version=CMQC.MQGMO_VERSION_4, Options=options | CMQC.MQGMO_NO_SYNCPOINT, MsgHandle=handle.msg_handle)
    md = mq.MD()
    return mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED).get(None, md, gmo), handle.properties, md
def value_of(answer):
    return answer[0] if isinstance(answer, tuple) else answer
"""


def program(package: str, queue: str, text: str, properties: object = PROPERTIES) -> str:
    return f"package, queue, properties = {package!r}, {queue!r}, {properties!r}\n{PUT}\n{text}"


@pytest.mark.smoke
def test_all_types(manager: Manager, package: str, queue: str) -> None:
    results = manager.run(
        package,
        program(
            package,
            queue,
            """
put(handle)
data, got, md = get()
results['data'] = data
results['values'] = []
for name, kind, value in properties:
    answer = value_of(got.get(name.encode(), property_type=getattr(CMQC, kind)))
    if isinstance(answer, bytes) and isinstance(value, str):
        answer = answer.decode()
    results['values'].append([name, answer == value])
results['format'] = md.Format
""",
        ),
    )
    assert results["data"] == "data" and results["format"] == "        "
    assert results["values"] == [[name, True] for name, _, _ in PROPERTIES]


@pytest.mark.smoke
def test_wildcards_and_lengths(manager: Manager, package: str, queue: str) -> None:
    """`%` returns all properties, one after the other, and then 2471."""
    results = manager.run(
        package,
        program(
            package,
            queue,
            """
put(handle)
data, got, md = get()
options, names = CMQC.MQIMPO_INQ_FIRST, []
while True:
    try:
        names.append(value_of(got.get(b'%', impo_options=options, max_value_length=200)))
    except mq.MQMIError as error:
        results['end'] = error.reason
        break
    options = CMQC.MQIMPO_INQ_NEXT
results['count'] = len(names)
results['ints'] = value_of(got.get(b'int%', impo_options=CMQC.MQIMPO_INQ_FIRST))
results['absent'] = reason(got.get, b'absent')
results['no longer'] = reason(got.get, b'string', max_value_length=2)
""",
        ),
    )
    assert results == {"end": 2471, "count": len(PROPERTIES), "ints": -100, "absent": 2471, "no longer": 2469}


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("boolean", "MQTYPE_STRING", "TRUE"),
        ("boolean", "MQTYPE_INT64", 1),
        ("bytes", "MQTYPE_STRING", "0001FF"),
        ("int8", "MQTYPE_INT32", -100),
        ("int16", "MQTYPE_STRING", "-30000"),
        ("float32", "MQTYPE_STRING", "1.5"),
        ("float32", "MQTYPE_FLOAT64", 1.5),
        ("float64", "MQTYPE_STRING", "1e+300"),
        ("number", "MQTYPE_INT16", 1234),
        ("number", "MQTYPE_FLOAT64", 1234.0),
        ("number", "MQTYPE_INT8", 2472),
        ("word", "MQTYPE_BOOLEAN", 1),
        ("word", "MQTYPE_INT32", 2472),
        ("int64", "MQTYPE_INT32", 2470),
        ("float64", "MQTYPE_FLOAT32", 2470),
        ("int32", "MQTYPE_BOOLEAN", 2470),
    ],
)
def test_conversion(manager: Manager, name: str, kind: str, expected: object) -> None:
    """MQIMPO_CONVERT_TYPE by the table of "MQIMPO - Options". A number above 2000 is the expected reason code."""
    properties = [*PROPERTIES, ("number", "MQTYPE_STRING", "1234"), ("word", "MQTYPE_STRING", "true")]
    results = manager.run(
        "ibmmq",
        program(
            "ibmmq",
            "",
            f"""
try:
    results['value'] = handle.properties.get({name!r}, impo_options=CMQC.MQIMPO_CONVERT_TYPE, property_type=CMQC.{kind})
except mq.MQMIError as error:
    results['value'] = error.reason
results['unconverted'] = reason(handle.properties.get, {name!r}, property_type=CMQC.{kind})
""",
            properties,
        ),
    )
    value = results["value"]
    assert value == expected
    assert results["unconverted"] == 2473


def test_rules_of_names_and_handles(manager: Manager) -> None:
    results = manager.run(
        "ibmmq",
        program(
            "ibmmq",
            "",
            """
results['names'] = {name: reason(handle.properties.set, name, 'x') for name in (
    'plain', 'a.b.c', 'usr.plain', 'JMSType', 'JMSOther', 'not', 'a..b', 'a.', '1a', 'with blank', 'mq.a.b', 'Root.MQMD.X')}
results['synonym'] = handle.properties.get('usr.plain')
handle.properties.dlt('plain')
results['deleted'] = reason(handle.properties.get, 'plain')
results['type'] = reason(handle.properties.set, 'typed', 1, property_type=CMQC.MQTYPE_INT32 | CMQC.MQTYPE_INT64)
handle.dlt()
results['gone'] = reason(mq.MessageHandle._Properties(qmgr.get_handle(), handle.msg_handle).get, 'a.b.c')
""",
        ),
    )
    assert results["names"] == {
        "plain": 0,
        "a.b.c": 0,
        "usr.plain": 0,
        "JMSType": 0,
        "JMSOther": 2442,
        "not": 2442,
        "a..b": 2442,
        "a.": 2442,
        "1a": 2442,
        "with blank": 2442,
        "mq.a.b": 2442,
        "Root.MQMD.X": 2442,
    }
    assert (results["synonym"], results["deleted"], results["gone"]) == ("x", 2471, 2460)


def test_selectors(manager: Manager, package: str, queue: str) -> None:
    """A handle opened with a selection string gets the messages whose properties match."""
    results = manager.run(
        package,
        program(
            package,
            queue,
            """
for colour in ('red', 'green', 'blue'):
    handle.properties.set(b'colour', colour, value_length=len(colour))
    put(handle, colour.encode())
od = mq.OD(Version=CMQC.MQOD_VERSION_4, ObjectName=queue.encode())
od.set_vs('SelectionString', b"colour = 'green'")
selected = mq.Queue(qmgr)
selected.open(od, CMQC.MQOO_INPUT_SHARED)
none = mq.GMO(Options=CMQC.MQGMO_NO_PROPERTIES)
results['selected'] = [selected.get(None, mq.MD(), none), reason(selected.get)]
od.set_vs('SelectionString', b"colour = ")
results['wrong'] = reason(mq.Queue(qmgr).open, od, CMQC.MQOO_INPUT_SHARED)
""",
            [],
        ),
    )
    assert results == {"selected": ["green", 2033], "wrong": 2459}


def test_properties_as_rfh2(manager: Manager, package: str, queue: str) -> None:
    """A program without message handles gets the properties in an RFH2, and puts them in one."""
    results = manager.run(
        package,
        program(
            package,
            queue,
            """
put(handle)
plain = mq.Queue(qmgr, queue, CMQC.MQOO_INPUT_SHARED)
md = mq.MD()
data = plain.get(None, md, mq.GMO(Options=CMQC.MQGMO_PROPERTIES_FORCE_MQRFH2))
results['format'] = md.Format
results['folder'] = b'<usr>' in data and b"<int8 dt='i1'>-100</int8>" in data.replace(b'"', b"'")
mq.Queue(qmgr, queue).put(data, md)
data, got, md = get()
results['back'] = [data, value_of(got.get(b'int8')), md.Format]
""",
        ),
    )
    assert results == {"format": "MQHRF2  ", "folder": True, "back": ["data", -100, "        "]}
