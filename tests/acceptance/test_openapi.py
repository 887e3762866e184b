"""The console's API as `/openapi.json` describes it: schemathesis sends requests to each path and compares the answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.applications import TOKEN, tokens_of
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.installed import BUILD, built
from tests.helpers.patience import PATIENCE
from tests.helpers.scrape import admin_url, ask

pytestmark = [
    pytest.mark.slow,  # about a thousand requests
    pytest.mark.timeout(1_800),
    # The API is that of the console. Its requests have their own tests on IBM MQ.
    pytest.mark.queue_managers("embedded"),
]

CONFIG = """
queue_manager: {{data_directory: {0}/data}}
channels: [{{name: PLAIN.MQTT, port: 0}}]
admin:
  port: 0
  token_file: {0}/tokens
  applications: {{app: {{mq_user: app, publish_rate: null, call_timeout: 0.2}}}}
"""
#: Requests of applications, and streams of events, which never end.
OF_APPLICATIONS, ENDLESS = "^/application/", "^/(topics|clients)/events"
#: Values that a schema permits may name missing objects, or be rejected with 422. Forms contain only text, so a wrong type is
#: a possible text. Unknown tokens delay further ones, and the other checks would be too late then.
LEFT_OUT = "positive_data_acceptance,negative_data_rejection,ignored_auth"


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("openapi")
    tokens = directory / "tokens"
    tokens.write_text(f"admin:change:{TOKEN}admin\n{tokens_of('app')}")
    tokens.chmod(0o600)
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        yield process


@pytest.mark.parametrize(
    ("name", "options", "left_out"),
    [
        # 504 is the answer to a call without a reply.
        ("app", ["--include-path-regex", OF_APPLICATIONS], f"{LEFT_OUT},not_a_server_error"),
        ("admin", ["--exclude-path-regex", f"{OF_APPLICATIONS}|{ENDLESS}"], LEFT_OUT),
    ],
)
def test_each_path_answers_as_described(
    bridge: BridgeProcess, tmp_path: Path, name: str, options: list[str], left_out: str
) -> None:
    program = built("schemathesis", BUILD / "schemathesis" / "lock").parent / "bin" / "schemathesis"
    url = admin_url(bridge.announced)
    document = tmp_path / "openapi.json"
    status, text = ask(f"{url}/openapi.json", "application/json", f"{TOKEN}admin")
    assert status == 200 and json.loads(text)["paths"]
    document.write_text(text)
    command = [
        program,
        "run",
        document,
        "--url",
        url,
        "--no-color",
        "--phases",
        "coverage",
        "--max-examples",
        "1",
        *options,
    ]
    headers = ["-H", f"Authorization: Bearer {TOKEN}{name}", "-H", "Accept: application/json"]
    process = subprocess.run(
        [*command, *headers, "--exclude-checks", left_out, "--request-timeout", str(PATIENCE)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-8_000:] + process.stderr
