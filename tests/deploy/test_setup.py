"""deploy/setup.sh: environments that an interrupted set-up left behind, or that were moved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]


def setup(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", ROOT / "deploy" / "setup.sh", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_an_environment_without_pip_is_created_again(tmp_path: Path) -> None:
    """As Ctrl-C leaves it in the first seconds of `make run`."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE)
    done = setup(environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "creating it again" in done.stdout
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--version"], check=True, timeout=PATIENCE)


def test_a_complete_environment_is_kept_where_it_is_and_unusable_elsewhere(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE)
    (environment / ".ready").write_text(f"{environment}\n", encoding="utf-8")
    assert setup("--check", environment).returncode == 0
    done = setup(environment)
    assert (done.returncode, done.stdout) == (0, "")
    moved = environment.rename(tmp_path / "moved")
    assert setup("--check", moved).returncode == 1


def test_an_environment_that_is_not_there_has_nothing_to_check(tmp_path: Path) -> None:
    """make creates it anyway."""
    assert setup("--check", tmp_path / "environment").returncode == 0
