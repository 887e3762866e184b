"""The syntax of MQSC, as described in IBM's "Building command scripts" and "MQSC commands reference"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.mqsc import Command, Position, read


def only(script: str) -> Command:
    commands = read(script)
    assert len(commands) == 1, [command.text for command in commands]
    assert commands[0].problem is None, commands[0].problem
    return commands[0]


def values(command: Command) -> dict[str, object]:
    return {parameter.keyword: parameter.values for parameter in command.parameters}


def test_a_command_is_a_verb_a_noun_and_a_name(subtests: pytest.Subtests) -> None:
    for script, verb, noun, name in [
        ("DEFINE QLOCAL(ORANGE.LOCAL.QUEUE)", "DEFINE", "QLOCAL", "ORANGE.LOCAL.QUEUE"),
        ("define qlocal(orange)", "DEFINE", "QLOCAL", "ORANGE"),
        ("def ql('orange')", "DEFINE", "QLOCAL", "orange"),
        ("DEF QA(A) TARGET(B)", "DEFINE", "QALIAS", "A"),
        ("DEF QR(A) RNAME(B)", "DEFINE", "QREMOTE", "A"),
        ("ALT QL ( 'Account' )", "ALTER", "QLOCAL", "Account"),
        ("ALTER QMGR DEADQ(X)", "ALTER", "QMGR", None),
        ("DIS Q(*)", "DISPLAY", "QUEUE", "*"),
        ("DIS QS(A*)", "DISPLAY", "QSTATUS", "A*"),
        ("DIS TPS('a/#')", "DISPLAY", "TPSTATUS", "a/#"),
        ("CLEAR QL(A)", "CLEAR", "QLOCAL", "A"),
        ("CLEAR TOPICSTR('a/b') CLRTYPE(RETAINED)", "CLEAR", "TOPICSTR", "a/b"),
        ("DELETE SUB('device-1:a/+/c')", "DELETE", "SUB", "device-1:a/+/c"),
        ("DEL SUB(X)", "DELETE", "SUB", "X"),
        ("PING QMGR", "PING", "QMGR", None),
        ("   ,DEFINE,QLOCAL , (A)  ,", "DEFINE", "QLOCAL", "A"),
        ("DEFINE QLOCAL(A);", "DEFINE", "QLOCAL", "A"),
        ("DEFINE\tQLOCAL(A)\r", "DEFINE", "QLOCAL", "A"),
    ]:
        with subtests.test(script=script, verb=verb, noun=noun, name=name):
            command = only(script)
            assert (command.verb, command.noun, command.name) == (verb, noun, name)


def test_words_are_folded_to_capitals_and_quoted_strings_are_kept(subtests: pytest.Subtests) -> None:
    for written, value in [
        ("abc", "ABC"),
        ("'abc'", "abc"),
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("''", ""),
        ("' blanks  stay '", " blanks  stay "),
        ("'(not a list)'", "(not a list)"),
        ("'a;b'", "a;b"),
        ("'a,b'", "a,b"),
        ("a.b_c/d%e", "A.B_C/D%E"),
        ("größe", "GRößE"),
    ]:
        with subtests.test(written=written, value=value):
            assert values(only(f"ALTER QLOCAL(Q) DESCR({written})")) == {"DESCR": (value,)}


def test_parameters_have_no_value_one_value_or_several() -> None:
    command = only("SET AUTHREC PROFILE(A) AUTHADD(PUT,GET, INQ) REPLACE CONNAME(host(1414)) DESCR()")
    assert values(command) == {
        "PROFILE": ("A",),
        "AUTHADD": ("PUT", "GET", "INQ"),
        "REPLACE": None,
        "CONNAME": ("HOST", ("1414",)),
        "DESCR": (),
    }
    assert [parameter.value for parameter in command.parameters] == ["A", None, None, None, None]


def test_lines_are_continued(subtests: pytest.Subtests) -> None:
    for script, description in [
        ("ALTER QL(Q) DESCR('Fr+\n     ed')", "Fred"),
        ("ALTER QL(Q) DESCR('Fr-\ned')", "Fred"),
        ("ALTER QL(Q) DESCR('Fr-\n  ed')", "Fr  ed"),
        ("ALTER QL(Q) DESCR('Fr +\n  ed')", "Fr ed"),
        ("ALTER QL(Q) +\n  DESCR('Fred')", "Fred"),
        ("ALTER QL(Q) +   \n\n* a comment\n   * and another\n  DESCR('Fred')", "Fred"),
        ("ALTER QL(Q) -\n  DESCR('Fred')", "Fred"),
        ("ALTER QL(Q) DESCR('Fred') +\n;", "Fred"),
        ("ALTER QL(Q) DESCR(\n  'Fred'\n)", "Fred"),
    ]:
        with subtests.test(script=script, description=description):
            assert values(only(script)) == {"DESCR": (description,)}


def test_plus_joins_without_a_blank() -> None:
    """IBM: "If you use + to continue a command remember to leave at least one blank before the next parameter"."""
    assert values(only("ALTER QL(Q) MAXDE+\n   PTH(5)")) == {"MAXDEPTH": ("5",)}


def test_comments_blank_lines_and_several_commands() -> None:
    script = "* first\n\nDEFINE QLOCAL(A)\n  * second DEFINE QLOCAL(X)\nDEFINE QLOCAL(B) ; DEFINE QLOCAL(C)\n\n"
    assert [(command.name, command.line) for command in read(script)] == [("A", 3), ("B", 5), ("C", 5)]


def test_the_line_of_a_command_is_its_first_line() -> None:
    commands = read("\n* x\nDEFINE QLOCAL(A) +\n  DESCR('x') +\n\n  MAXDEPTH(1)\nPING QMGR")
    assert [(command.verb, command.line) for command in commands] == [("DEFINE", 3), ("PING", 7)]
    assert [parameter.where for parameter in commands[0].parameters] == [Position(4, 3), Position(6, 3)]


def test_the_text_of_a_command_is_kept_as_written() -> None:
    assert only("  def ql(a) +\n     descr('x')").text == "def ql(a) descr('x')"


def test_end_ends_a_script() -> None:
    assert [command.name for command in read("DEF QL(A)\nend\nDEF QL(B)")] == ["A"]


def test_a_syntax_error_has_its_position_and_the_expected_token(subtests: pytest.Subtests) -> None:
    for script, line, column, says in [
        ("DEFINE QLOCAL(A", 1, 15, "parenthesis is not closed"),
        ("DEFINE QLOCAL(A))", 1, 17, "keyword"),
        ("DEFINE QLOCAL('A)", 1, 15, "quotation mark is not closed"),
        ("DEFINE QLOCAL(A) DESCR 'x'", 1, 24, "keyword"),
        ("QLOCAL(A)", 1, 1, "begins with"),
        ("MAKE QLOCAL(A)", 1, 1, "begins with"),
        ("DEFINE", 1, 1, "what"),
        ("DEFINE BANANA(A)", 1, 8, "does not support BANANA"),
        ("DEFINE QLOCAL(A B)", 1, 8, "one name"),
        ("DEFINE QLOCAL()", 1, 8, "one name"),
        ("ALTER QLOCAL(A) DESCR(a) DESCR(b)", 1, 26, "twice"),
        ("DEFINE QLOCAL(A) +\n   DESCR('x') )", 2, 15, "keyword"),
        ("DEFINE QLOCAL(A) +", 1, 17, "no line follows"),
        ("DEFINE QLOCAL(A) +\n* only a comment\n", 1, 17, "no line follows"),
    ]:
        with subtests.test(script=script, line=line, column=column, says=says):
            (command,) = read(script)
            assert command.problem is not None
            assert command.problem.where == Position(line, column)
            assert says in command.problem.detail


@given(
    st.lists(st.sampled_from(["DEFINE", "QLOCAL", "(", ")", "'", ";", "+", "-", "*", "\n", " ", ",", "a"]), max_size=30)
)
def test_any_text_can_be_parsed(pieces: list[str]) -> None:
    script = "".join(pieces)
    lines = script.split("\n")
    for command in read(script):
        assert 1 <= command.line <= len(lines)
        if command.problem is not None:
            where = command.problem.where
            assert command.line <= where.line <= len(lines)
            assert 1 <= where.column <= len(lines[where.line - 1]) + 1


def test_a_command_in_error_does_not_stop_the_script() -> None:
    script = "DEFINE QLOCAL(A\nDEFINE QLOCAL(B)\nNONSENSE\nDEFINE QLOCAL('C)\nDEFINE QLOCAL(D)"
    assert [(command.line, command.problem is None, command.name) for command in read(script)] == [
        (1, False, None),
        (2, True, "B"),
        (3, False, None),
        (4, False, None),
        (5, True, "D"),
    ]
