"""Setup scripts: interrupted and moved environments, failing downloads, proxies, missing programs, spaces in the path."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE, until

ROOT = Path(__file__).parents[3]


def script(path: Path, text: str) -> None:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def run(
    name: str | Path, *words: str | Path, path: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of the repository with a separate environment, in which `path` precedes the PATH of the tests."""
    before = "" if path is None else f"{path}:"
    return subprocess.run(
        ["sh", ROOT / name, *words],
        env={"HOME": "/nonexistent", **variables, "PATH": f"{before}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def setup(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", ROOT / "deploy" / "setup.sh", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.slow
def test_an_environment_without_pip_is_created_again(tmp_path: Path) -> None:
    """As Ctrl-C leaves it in the first seconds of `make run`."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE)
    process = setup(environment)
    assert (process.returncode, process.stderr) == (0, "")
    assert "creating it again" in process.stdout
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--version"], check=True, timeout=PATIENCE)


def test_a_complete_environment_is_reused_only_in_its_directory(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE)
    (environment / ".ready").write_text(f"{environment}\n", encoding="utf-8")
    assert setup("--check", environment).returncode == 0
    process = setup(environment)
    assert (process.returncode, process.stdout) == (0, "")
    moved = environment.rename(tmp_path / "moved")
    assert setup("--check", moved).returncode == 1


def test_a_missing_environment_is_not_checked(tmp_path: Path) -> None:
    """make creates it in any case."""
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
        script(tmp_path / program, "exit 0")
    result = run("deploy/packages.sh", "no-such-package", path=tmp_path)
    assert result.returncode == 1
    assert (
        result.stderr == "setup: apt-get did not install no-such-package; run the same make command again to continue\n"
    )


def test_the_stand_in_can_be_built_in_a_path_with_spaces(tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    shutil.copytree(ROOT / "tests" / "ibm_standin", checkout / "tests" / "ibm_standin")
    (checkout / "bridge").symlink_to(ROOT / "bridge")
    command = ["make", "--dry-run", f"--directory={checkout / 'tests' / 'ibm_standin'}", f"PYTHON={sys.executable}"]
    result = subprocess.run(
        command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "-o ../../build/mqi/lib64/libmqm_r.so" in result.stdout


# Downloads that fail -----------------------------------------------------------------------------------------------------

RESOLVING = "Temporary failure resolving deb.debian.org"


@pytest.mark.parametrize("words", [["gcc"], []], ids=["install", "update"])
def test_a_failing_apt_get_is_reported_with_its_first_error_and_a_remedy(tmp_path: Path, words: list[str]) -> None:
    """apt-get update exits with 0 if it reaches no server."""
    warnings = f"for _ in 1 2 3 4 5 6; do echo 'W: Failed to fetch http://deb.debian.org  {RESOLVING}' >&2; done"
    script(tmp_path / "apt-get", f"{warnings}; case $1 in install) echo 'E: Unable to fetch'; exit 100 ;; esac")
    script(tmp_path / "sudo", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')
    result = run("deploy/packages.sh", *words, path=tmp_path)
    assert result.returncode == 1
    action = "install the Debian packages gcc" if words else "update apt's package lists"
    assert result.stderr.splitlines() == [
        f"setup: cannot {action}: W: Failed to fetch http://deb.debian.org  {RESOLVING}",
        "hint: check the network, apt's proxy and /etc/apt/sources.list, and run the same command again",
    ]


@pytest.mark.parametrize("attempts", [3, 1000], ids=["released", "locked for ever"])
def test_setup_waits_for_another_program_that_installs_packages(tmp_path: Path, attempts: int) -> None:
    """On a new machine, unattended-upgrades may hold the lock for minutes."""
    lock = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)"
    calls = tmp_path / "calls"
    locked = f"echo '{lock}' >&2; echo 'E: Unable to acquire the dpkg frontend lock' >&2; exit 100"
    script(tmp_path / "apt-get", f"echo >>{calls}; [ $(wc -l <{calls}) -ge {attempts} ] || {{ {locked}; }}")
    script(tmp_path / "sudo", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')
    script(tmp_path / "sleep", "exit 0")
    result = run("deploy/packages.sh", path=tmp_path)
    assert result.stdout == f"waiting for another program that installs packages: {lock}\n"
    if attempts == 3:
        assert (result.returncode, result.stderr, len(calls.read_text())) == (0, "", attempts)
    else:
        assert result.returncode == 1
        assert result.stderr == (
            f"setup: cannot update apt's package lists: {lock}\n"
            "hint: wait until the other program has ended, and run the same command again\n"
        )


def test_sudo_gets_the_proxies(tmp_path: Path) -> None:
    script(tmp_path / "id", "echo 1000")
    script(tmp_path / "apt-get", "exit 0")
    script(tmp_path / "sudo", 'shift; [ "$1" = true ] || echo "$@" >&2')
    result = run("deploy/packages.sh", path=tmp_path, http_proxy="http://proxy:3128", https_proxy="http://proxy:3129")
    assert result.stderr == ""
    script(tmp_path / "sudo", f'shift; [ "$1" = true ] || echo "$@" >>{tmp_path}/words')
    assert run("deploy/packages.sh", path=tmp_path, http_proxy="http://proxy:3128").returncode == 0
    assert (tmp_path / "words").read_text() == "env http_proxy=http://proxy:3128 apt-get update -qq\n"


def test_pip_without_a_network_names_the_step_and_a_remedy() -> None:
    result = run(
        "deploy/pip.sh", sys.executable, "the bridge's packages", "no-such-package",
        PIP_INDEX_URL="https://127.0.0.1:1/simple", PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull,
    )  # fmt: skip
    assert result.returncode == 1
    step, hint = result.stderr.splitlines()[-2:]
    assert step.startswith("setup: cannot install the bridge's packages: Could not find a version")
    assert hint == (
        "hint: pip cannot reach a package index. Set HTTPS_PROXY, or PIP_INDEX_URL to a mirror, and run the command again"
    )


@pytest.mark.slow
def test_pip_and_npm_trust_the_certificate_of_a_proxy_only_if_the_bundle_contains_it(tmp_path: Path) -> None:
    """A registry whose certificate authority only PIP_CERT and NODE_EXTRA_CA_CERTS contain."""
    Authority(tmp_path).issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as registry:
        registry.socket = context.wrap_socket(registry.socket, server_side=True)
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        url = f"https://localhost:{registry.server_port}"
        pip = ("deploy/pip.sh", sys.executable, "a package", "no-such-package")
        variables = {"PIP_INDEX_URL": url, "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull}
        untrusted = run(*pip, **variables)
        assert untrusted.returncode == 1 and "hint: add the certificate of your proxy to the system" in untrusted.stderr
        trusted = run(*pip, PIP_CERT=str(tmp_path / "ca.pem"), **variables)
        assert trusted.returncode == 1 and "certificate" not in trusted.stderr, trusted.stderr
        checkout = tmp_path / "checkout"
        (checkout / "deploy").mkdir(parents=True)
        shutil.copytree(ROOT / "tests" / "mqtt_js", checkout / "tests" / "mqtt_js")
        for name in ("deploy/network.sh", "tests/node-packages.sh"):
            shutil.copy(ROOT / name, checkout / name)
        npm = (checkout / "tests" / "node-packages.sh", sys.executable, "mqtt_js")
        variables = {"npm_config_registry": url, "npm_config_fetch_retries": "0", "npm_config_globalconfig": os.devnull}
        variables |= {"npm_config_cache": str(tmp_path / "cache"), "npm_config_replace_registry_host": "always"}
        untrusted = run(*npm, **variables)
        (reported, hint) = untrusted.stderr.splitlines()
        assert untrusted.returncode == 1 and "UNABLE_TO_VERIFY_LEAF_SIGNATURE" in reported, untrusted.stderr
        assert hint.startswith("hint: set HTTPS_PROXY or npm's registry. The certificate of a proxy belongs into /")
        trusted = run(*npm, NODE_EXTRA_CA_CERTS=str(tmp_path / "ca.pem"), **variables)
        assert "501" in trusted.stderr and "VERIFY" not in trusted.stderr, trusted.stderr
        registry.shutdown()


BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@pytest.mark.skipif(not Path(BUNDLE).exists(), reason="the system has no bundle of certificates there")
@pytest.mark.parametrize(
    ("variables", "configuration", "expected"),
    [
        ({}, None, f"{BUNDLE} {BUNDLE}"),
        ({"PIP_CERT": "/my.pem"}, None, f"/my.pem {BUNDLE}"),
        ({"NODE_EXTRA_CA_CERTS": "/my.pem"}, None, f"{BUNDLE} /my.pem"),
        ({}, "[global]\ncert = /my.pem\n", f" {BUNDLE}"),
    ],
)
def test_downloads_trust_the_bundle_of_the_system_unless_another_is_configured(
    tmp_path: Path, variables: dict[str, str], configuration: str | None, expected: str
) -> None:
    files = "/etc/pip.conf /etc/xdg/pip/pip.conf"
    text = (ROOT / "deploy" / "network.sh").read_text(encoding="utf-8")
    assert files in text
    (tmp_path / "network.sh").write_text(text.replace(files, str(tmp_path / "pip.conf")), encoding="utf-8")
    if configuration is not None:
        (tmp_path / "pip.conf").write_text(configuration, encoding="utf-8")
    (tmp_path / "show.sh").write_text(f'. {tmp_path}/network.sh; echo "${{PIP_CERT:-}} ${{NODE_EXTRA_CA_CERTS:-}}"\n')
    result = run(tmp_path / "show.sh", **variables)
    assert (result.stdout.strip("\n"), result.stderr) == (expected, "")


# Programs that cannot be had ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("require", ["", "all"])
def test_the_tests_continue_without_a_program_unless_all_are_required(tmp_path: Path, require: str) -> None:
    shutil.copy(ROOT / "tests" / "programs.sh", tmp_path)
    (tmp_path / "ibm_standin").mkdir()
    for name in ("system-packages", "unpacked-packages", "ibm_standin/environments", "node-packages"):
        script(tmp_path / f"{name}.sh", f"echo {name}; exit {int(name == 'node-packages')}")
    result = run(tmp_path / "programs.sh", sys.executable, MQBRIDGE_TEST_REQUIRE=require)
    assert result.stdout.split() == [
        "system-packages",
        "unpacked-packages",
        "ibm_standin/environments",
        "node-packages",
    ]
    text = "does not go on without MQTT.js" if require else "setup: going on without MQTT.js"
    assert (result.returncode, text in result.stderr) == (int(require == "all"), True), result.stderr


@pytest.mark.parametrize("require", ["", "all"])
def test_a_test_without_its_program_is_skipped_and_listed_last(tmp_path: Path, require: str) -> None:
    (tmp_path / "test_shell.py").write_text(
        "import subprocess\ndef test_fish():\n    subprocess.run(['fish', '-c', 'true'], check=True)\n"
    )
    plugins = [f"-p{name}" for name in ("no:cacheprovider", "tests.helpers.installed", "tests.helpers.summary")]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, *plugins, tmp_path],
        cwd=ROOT,
        env={"PATH": "/nonexistent", "MQBRIDGE_TEST_REQUIRE": require},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = result.stdout.splitlines()
    if require:
        assert result.returncode == 1 and "1 failed" in result.stdout, result.stdout
    else:
        assert result.returncode == 0, result.stdout + result.stderr
        assert lines[-2] == "1 tests skipped, not installed: fish (tests/programs.sh installs it)", lines


def test_python_3_10_reports_the_required_version() -> None:
    """pip runs the build hook before it compares the version."""
    program = (
        f"import runpy, sys; sys.modules['tomllib'] = None; runpy.run_path({str(ROOT / 'deploy' / 'compile.py')!r})"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("mqbridge needs Python 3.11 or newer, found 3.")
