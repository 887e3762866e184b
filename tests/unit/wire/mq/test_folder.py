"""RFH2 folders: writing, reading, and preservation of unreadable folders."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mq import Folder, MalformedHeader, Typed


def test_values_are_written_with_their_type_and_read_back(subtests: pytest.Subtests) -> None:
    for value, written, read in [
        ("text", "<x>text</x>", "text"),
        ("", "<x></x>", ""),
        ("  kept  ", "<x>  kept  </x>", "  kept  "),
        ("a<b>&\"c'", "<x>a&lt;b&gt;&amp;&quot;c&apos;</x>", "a<b>&\"c'"),
        ("Grüße 🚲", "<x>Grüße 🚲</x>", "Grüße 🚲"),
        (True, "<x dt='boolean'>1</x>", True),
        (False, "<x dt='boolean'>0</x>", False),
        (7, "<x dt='i4'>7</x>", 7),
        (-(1 << 31), "<x dt='i4'>-2147483648</x>", -(1 << 31)),
        (1 << 31, "<x dt='i8'>2147483648</x>", 1 << 31),
        (1.5, "<x dt='r8'>1.5</x>", 1.5),
        (-math.inf, "<x dt='r8'>-INF</x>", -math.inf),
        (b"\x00\xff", "<x dt='bin.hex'>00ff</x>", b"\x00\xff"),
        (b"", "<x dt='bin.hex'></x>", b""),
        (None, "<x xsi:nil='true'></x>", None),
        (Typed(7, "i1"), "<x dt='i1'>7</x>", 7),
        (Typed(7, None), "<x>7</x>", "7"),
        (Typed("7", "i2"), "<x dt='i2'>7</x>", 7),
        (Typed(0.5, "r4"), "<x dt='r4'>0.5</x>", 0.5),
        (Typed("s", "string"), "<x dt='string'>s</x>", "s"),
        ({"y": "1", "z": {"deep": 2}}, "<x><y>1</y><z><deep dt='i4'>2</deep></z></x>", {"y": "1", "z": {"deep": 2}}),
        (["a", 1, {"b": "c"}], "<x>a</x><x dt='i4'>1</x><x><b>c</b></x>", ["a", 1, {"b": "c"}]),
    ]:
        with subtests.test(value=value, written=written, read=read):
            folder = Folder.build("usr", {"x": value})
            text = f"<usr>{written}</usr>".encode()
            assert folder.NameValueData == text + b" " * (-len(text) % 4)
            assert folder.name == "usr"
            assert folder.content == {"x": read}
            assert type(folder.content["x"]) is type(read)


def test_the_folders_of_an_mqtt_publication() -> None:
    mqtt = Folder.build("mqtt", {"clientId": "client-1", "qos": "1", "msgid": "42"})
    assert mqtt.NameValueData == b"<mqtt><clientId>client-1</clientId><qos>1</qos><msgid>42</msgid></mqtt> "
    mqps = Folder.build("mqps", {"Top": "sensors/1", "Ret": "1"})
    assert mqps.NameValueData == b"<mqps><Top>sensors/1</Top><Ret>1</Ret></mqps>   "


def test_attributes_of_the_folder_element() -> None:
    folder = Folder.build("my", {"a": "b"}, attributes={"content": "properties", "note": "<'&\">"})
    assert folder.NameValueData.rstrip() == (b"<my content='properties' note='&lt;&apos;&amp;&quot;&gt;'><a>b</a></my>")
    assert folder.attributes == {"content": "properties", "note": "<'&\">"}
    assert Folder.build("usr", {}).attributes == {}


def test_folders_of_other_programs_are_read(subtests: pytest.Subtests) -> None:
    for text, content in [
        ("<usr></usr>", {}),
        ("<usr/>", {}),
        ("<usr></usr>\0\0", {}),
        ('  <usr >\n <a>1</a>\n <b\tdt = "i4" > 2 </b >\n</usr>  \n', {"a": "1", "b": 2}),
        ("<usr><a/><b dt='string'/></usr>", {"a": "", "b": ""}),
        ("<usr><a xsi:nil='true'/><b xsi:nil=\"1\" dt='i4'></b></usr>", {"a": None, "b": None}),
        ("<usr xmlns:xsi='http://x'><a other='1'>v</a></usr>", {"a": "v"}),
        (
            "<usr><a dt='i1'>-128</a><b dt='i2'>+32767</b><c dt='int'>-9223372036854775808</c></usr>",
            {"a": -128, "b": 32767, "c": -(1 << 63)},
        ),
        ("<usr><a dt='boolean'>true</a><b dt='boolean'>0</b></usr>", {"a": True, "b": False}),
        (
            "<usr><a dt='r4'>3.40282347E+38</a><b dt='r8'>.5</b><c dt='r8'>-7.</c></usr>",
            {"a": 3.40282347e38, "b": 0.5, "c": -7.0},
        ),
        ("<usr><a dt='bin.hex'>0AfF</a></usr>", {"a": b"\x0a\xff"}),
        ("<usr><a dt='some.day'>x</a></usr>", {"a": "x"}),
        ("<usr><a>&#65;&#x1F6B2;</a></usr>", {"a": "A🚲"}),
        (
            "<jms><Dst>topic://a/b</Dst><Tms>1714000000000</Tms><Dlv>2</Dlv></jms>",
            {"Dst": "topic://a/b", "Tms": "1714000000000", "Dlv": "2"},
        ),
        (
            "<usr><a><b>1</b><b>2</b></a><a>x</a><_$x.y-z>1</_$x.y-z></usr>",
            {"a": [{"b": ["1", "2"]}, "x"], "_$x.y-z": "1"},
        ),
    ]:
        with subtests.test(text=text, content=content):
            assert Folder(text.encode()).content == content
            for order, codec in (("little", "utf-16-le"), ("big", "utf-16-be")):
                for ccsid in (1200, 13488, 17584):
                    folder = Folder(text.encode(codec), ccsid, order)
                    assert folder.content == content
                    assert folder.name == text.strip().lstrip("<")[: len(folder.name)] != ""


def test_a_byte_order_mark_is_not_text() -> None:
    for folder in (Folder("\ufeff<a/>".encode()), Folder("\ufeff<a/>".encode("utf-16-be"), 1200, "big")):
        assert (folder.name, folder.content) == ("a", {})


def test_an_unreadable_folder_has_an_error_position_and_is_preserved(subtests: pytest.Subtests) -> None:
    for data, offset, words in [
        (b"", 0, "begins with the opening tag"),
        (b"    ", 4, "begins with the opening tag"),
        (b"plain text", 0, "begins with the opening tag"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", 0, "begins with the opening tag"),
        (b"<?xml version='1.0'?><a/>", 0, "begins with the opening tag"),
        (b"<usr><a>1</a>", 13, "usr is not closed"),
        (b"<usr><a>1</usr>", 9, "</usr> closes element a"),
        (b"<usr>text</usr>", 5, "usr has text next to elements"),
        (b"<usr><a>1<b>2</b></a></usr>", 8, "a has text next to elements"),
        (b"<usr><a><b>2</b>1</a></usr>", 16, "a has text next to elements"),
        (b"<usr><a>1</a></usr><b/>", 19, "something follows"),
        (b"<usr><!-- no --></usr>", 5, "no tag: '<!-- no -->"),
        (b"<usr><a>&b;</a></usr>", 8, "no such reference: '&b;"),
        (b"<usr><a>x & y</a></usr>", 10, "no such reference"),
        (b"<usr><a>&#0;</a></usr>", 8, "no such reference"),
        (b"<usr><a>&#xD800;</a></usr>", 8, "no such reference"),
        (b"<usr><a dt='i4' dt='i8'>1</a></usr>", 5, "attribute dt stands there twice"),
        (b"<usr><a dt=i4>1</a></usr>", 5, "no tag"),
        (b"<usr><a dt='i1'>128</a></usr>", 16, "128 does not fit dt=i1"),
        (b"<usr><a dt='i4'>1_0</a></usr>", 16, "'1_0' is not an integer"),
        (b"<usr><a dt='i4'></a></usr>", 16, "'' is not an integer"),
        (b"<usr><a dt='boolean'>2</a></usr>", 21, "'2' is not a boolean"),
        (b"<usr><a dt='bin.hex'>abc</a></usr>", 21, "hexadecimal pairs"),
        (b"<usr><a dt='r8'>1,5</a></usr>", 16, "not a floating-point number"),
        (b"<usr><a xsi:nil='true'>1</a></usr>", 23, "is nil, yet has text"),
        (b"<usr><a xsi:nil='true'><b/></a></usr>", 27, "is nil, yet has elements"),
        ("<usr><ü>é</ü><a>&b;</a></usr>".encode(), 19, "no such reference"),
        (b"<usr><a>\xff</a></usr>", 8, "not CCSID 1208"),
    ]:
        with subtests.test(data=data, offset=offset, words=words):
            folder = Folder(data)
            with pytest.raises(MalformedHeader) as error:
                folder.content  # noqa: B018
            assert (error.value.structure, error.value.offset) == ("MQRFH2", offset)
            assert words in error.value.rule
            assert folder.NameValueData == data
            with pytest.raises(MalformedHeader):
                folder.attributes  # noqa: B018


def test_the_name_of_an_unreadable_folder() -> None:
    assert Folder(b"<usr><a>").name == "usr"
    assert Folder(b" <usr dt=>").name == "usr"
    assert Folder(b"usr").name == ""
    assert Folder(b"\xff\xfe").name == ""
    assert Folder(b"<usr/>", 850).name == ""
    with pytest.raises(MalformedHeader, match="NameValueCCSID 850"):
        Folder(b"<usr/>", 850).content  # noqa: B018


def test_content_that_cannot_be_written_is_malformed(subtests: pytest.Subtests) -> None:
    for name, content in [
        ("", {}),
        ("1st", {}),
        ("a b", {}),
        ("a><b", {}),
        ("usr", {"a<": "x"}),
        ("usr", {"": "x"}),
        ("usr", {"a": 1 << 63}),
        ("usr", {"a": Typed(200, "i1")}),
        ("usr", {"a": Typed("maybe", "boolean")}),
        ("usr", {"a": "\0"}),
        ("usr", {"a": "\ud800"}),
    ]:
        with subtests.test(name=name, content=content), pytest.raises(MalformedHeader):
            Folder.build(name, content)


def test_a_type_without_a_dt_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="complex"):
        Folder.build("usr", {"a": 1j})


def test_depth_is_limited_for_reading_and_writing() -> None:
    deep: dict[str, Any] = {"a": "1"}
    for _ in range(98):
        deep = {"a": deep}
    folder = Folder.build("a", deep)
    assert folder.content == deep
    with pytest.raises(MalformedHeader, match="100 elements"):
        Folder.build("a", {"a": deep})
    with pytest.raises(MalformedHeader, match="100 elements"):
        Folder(b"<a>" * 100_000).content  # noqa: B018


def test_hostile_text_costs_linear_time() -> None:
    for hostile in (
        b"<a " + b" " * 200_000,
        b"<a" + b" b='c'" * 50_000,
        b"<" + b"a" * 300_000,
        b"<a>" + b"&" * 300_000,
    ):
        with pytest.raises(MalformedHeader):
            Folder(hostile).content  # noqa: B018


def test_the_content_belongs_to_the_caller() -> None:
    data = b"<usr><a>1</a><b><c>1</c></b><d>1</d><d>2</d></usr>"
    content: Any = Folder(data).content
    content["a"] = "changed"
    content["b"]["c"] = "changed"
    content["d"].append("changed")
    assert Folder(data).content == {"a": "1", "b": {"c": "1"}, "d": ["1", "2"]}


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$-]{0,8}", fullmatch=True)
strings = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
scalars = st.one_of(
    strings, st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.binary(), st.none()
)
elements = st.recursive(scalars, lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3), max_leaves=8)
values = elements | st.lists(elements, min_size=2, max_size=3)
contents = st.dictionaries(names, values, max_size=5)


@given(name=names, content=contents, attributes=st.dictionaries(names, strings, max_size=2))
def test_any_content_round_trips(name: str, content: Any, attributes: dict[str, str]) -> None:
    folder = Folder.build(name, content, attributes=attributes)
    assert len(folder.NameValueData) % 4 == 0
    assert (folder.name, folder.attributes, folder.content) == (name, attributes, content)


snippets = ["<a>", "</a>", "<a/>", "<a dt='i4'>", "1", "&lt;", "&", "<", ">", " ", "'", "</b>", "<b x='y'>", "\0", "é"]


@given(data=st.binary(max_size=60) | st.lists(st.sampled_from(snippets)).map(lambda parts: "".join(parts).encode()))
def test_arbitrary_text_is_malformed_at_worst(data: bytes) -> None:
    for folder in (Folder(data), Folder(data, 1200), Folder(data, 1200, "big"), Folder(data, -3)):
        assert isinstance(folder.name, str)
        try:
            assert isinstance(folder.content, dict)
        except MalformedHeader as error:
            assert 0 <= error.offset <= len(data)
