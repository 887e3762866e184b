"""The interactive session of `mqbridge mqsc` in a terminal."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path
from typing import Any


def test_a_terminal_has_an_interactive_session(queue_manager: Any, tmp_path: Path) -> None:
    queue = queue_manager.name("QUEUE")
    lines = [
        f"define qlocal({queue}) +",
        "descr('two lines')",
        "display cheese",
        "help",
        f"dis qlocal({queue}) descr",
        "end",
    ]
    program = Path(sys.executable).with_name("mqbridge")
    process, terminal = pty.fork()
    if not process:
        os.environ["NO_COLOR"] = "1"
        os.execv(program, [str(program), "mqsc", "--data-dir", str(queue_manager.directory)])
    printed = b""
    waiting = [*lines]
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the process has ended
            break
        if not part:
            break
        printed += part
        if waiting and printed.endswith(b"> "):
            os.write(terminal, waiting.pop(0).encode() + b"\n")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, printed.decode()
    text = printed.decode()
    assert "mqsc> " in text and "    > " in text
    assert f"AMQ8006I: Queue {queue} created." in text
    assert "AMQ8405I: Syntax error" in text and "Commands: ALTER" in text
    assert "DESCR(two lines)" in text
    assert waiting == []
