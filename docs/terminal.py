"""Record the quick start of README.md as an animated SVG, docs/images/quick-start.svg.

    python docs/terminal.py

Starts a bridge in a temporary directory, types the commands of the README one after the other, and records when each line
appears.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "images" / "quick-start.svg"
FONT = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"
#: Seconds between a command and the next one in the recording.
PAUSE = 1.5
WIDTH, LINE_HEIGHT, MARGIN = 820, 19, 16


class Recording:
    """Lines with the time at which each appeared."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, bool]] = []
        self._began: float | None = None

    def add(self, text: str, typed: bool = False) -> None:
        """Add a line: a typed command, or output."""
        now = time.monotonic()
        self._began = self._began or now
        self.lines.append((now - self._began, text, typed))

    def follow(self, process: subprocess.Popen[str]) -> None:
        """Add the output of a process in the background."""

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self.add(line.rstrip("\n"))

        threading.Thread(target=read, daemon=True).start()

    def svg(self) -> str:
        """Return the animation. Without animations, all lines are visible."""
        height = LINE_HEIGHT * len(self.lines) + 2 * MARGIN
        rows = []
        for number, (seconds, text, typed) in enumerate(self.lines):
            colour, prompt = ("#ffffff", "$ ") if typed else ("#b8d7a3", "")
            rows.append(
                f"<text x='{MARGIN}' y='{MARGIN + LINE_HEIGHT * (number + 1) - 5}' fill='{colour}' "
                f"style='animation-delay:{seconds:.1f}s' xml:space='preserve'>{escape(prompt + text)}</text>"
            )
        style = (
            "@media (prefers-reduced-motion: no-preference) {text {animation: show 0.1s backwards}} "
            "@keyframes show {from {opacity: 0} to {opacity: 1}}"
        )
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
        )
        return "\n".join(
            (
                f"{head} role='img' font-size='13' {FONT}>",
                "<title>Terminal session of the quick start</title>",
                f"<style>{style}</style>",
                f"<rect width='{WIDTH}' height='{height}' rx='8' fill='#1e1e1e'/>",
                *rows,
                "</svg>\n",
            )
        )


def commands() -> list[str]:
    """Return the commands of the quick start, without pauses."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Quick start\n")[2]
    blocks = re.findall(r"^```sh\n(.*?)^```", text.partition("\n## ")[0], re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line.startswith(("mosquitto", "mqbridge"))]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def record(directory: Path) -> Recording:
    """Run the quick start in a directory."""
    recording = Recording()
    port = free_port()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def start(command: str) -> subprocess.Popen[str]:
        command = re.sub(r"^(mosquitto_\w+)", rf"stdbuf -oL \1 -p {port}", command)
        return subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
        )

    bridge = start(f"mqbridge run --port {port} 2>&1")
    background = []
    try:
        assert bridge.stdout is not None
        while "listens" not in bridge.stdout.readline():
            pass
        for command in commands():
            time.sleep(PAUSE)
            recording.add(command, typed=True)
            process = start(command.removesuffix(" &"))
            recording.follow(process)
            if command.endswith("&"):
                background.append(process)
            else:
                process.wait()
        time.sleep(PAUSE)
    finally:
        for process in (*background, bridge):
            process.send_signal(signal.SIGTERM)
            process.wait()
    return recording


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        TARGET.write_text(record(Path(directory)).svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
