"""Setup scripts: interrupted and moved environments, packages that apt-get did not install, spaces in the path."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.patience import PATIENCE, until

ROOT = Path(__file__).parents[3]


def setup(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", ROOT / "deploy" / "setup.sh", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.slow
def test_an_environment_without_pip_is_created_again(tmp_path: Path) -> None:
    """As Ctrl-C leaves it in the first seconds of `make run`."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE)
    done = setup(environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "creating it again" in done.stdout
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--version"], check=True, timeout=PATIENCE)


def test_a_complete_environment_is_reused_only_in_its_directory(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_ctrl_c_while_the_environment_is_created_prints_no_traceback(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    command = ["sh", ROOT / "deploy" / "setup.sh", environment]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        until((environment / "bin" / "python").exists)  # next, ensurepip installs pip, which takes a second
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (-signal.SIGINT, f"setup: creating {environment}\n")
    assert "creating it again" in setup(environment).stdout
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--version"], check=True, timeout=PATIENCE)


def test_an_interrupted_apt_get_that_exits_with_0_ends_the_setup(tmp_path: Path) -> None:
    for program in ("apt-get", "sudo"):
        (tmp_path / program).write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    result = subprocess.run(
        ["sh", ROOT / "deploy" / "packages.sh", "no-such-package"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 1
    assert (
        result.stderr == "setup: apt-get did not install no-such-package; run the same make command again to continue\n"
    )


def test_the_stand_in_can_be_built_in_a_path_with_spaces(tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    shutil.copytree(ROOT / "tests" / "ibm_standin", checkout / "tests" / "ibm_standin")
    (checkout / "bridge").symlink_to(ROOT / "bridge")
    command = ["make", "--dry-run", f"--directory={checkout / 'testing' / 'ibm_standin'}", f"PYTHON={sys.executable}"]
    result = subprocess.run(
        command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "-o ../../build/mqi/lib64/libmqm_r.so" in result.stdout
