"""`mqbridge install-service` runs programs of systemd."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.cli.service import Work


@pytest.mark.parametrize(
    ("script", "failed", "message"),
    [
        ("exit 0", False, "run: systemd-sysusers FILE\n"),
        ("echo 'bad line' >&2; exit 1", True, "systemd-sysusers FILE: bad line\n"),
        ("exit 3", True, "systemd-sysusers FILE: exit status 3\n"),
        (None, True, "systemd-sysusers is not installed, and could not run: systemd-sysusers FILE\n"),
    ],
)
def test_errors_of_systemd_programs_are_reported(
    script: str | None,
    failed: bool,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if script is not None:
        program = tmp_path / "systemd-sysusers"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    work = Work(Path("/"), is_dry=False)
    work.run("systemd-sysusers", "FILE")
    printed = capsys.readouterr()
    assert (work.failed, printed.err if failed else printed.out) == (failed, message)
