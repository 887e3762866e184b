"""The pages of docs/: what they tell to type is there, and the reference has all that there is."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from bridge.cli.examples import EXAMPLES
from bridge.cli.program import program
from bridge.config import Configuration, load
from bridge.config.channel import ChannelConfig
from bridge.config.json_schema import json_schema
from bridge.config.tls import ListenerTlsConfig
from bridge.log_messages.catalogue import catalogue
from bridge.mapping.rules.template import WORDS, Template, TemplateError
from bridge.mq.embedded.attributes import ATTRIBUTES
from bridge.service.metrics.catalogue import METRICS
from bridge.wire.mq import MQMD

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
GUIDES = ("README.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
#: Seconds for pip to find that all is there, and for the pages.
PATIENCE = 240


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return {name: page() for name, page in module("reference").PAGES.items()}


def commands() -> list[tuple[str, str]]:
    """Return page and words of each `mqbridge ...` that a page has somebody type, also behind a pipe or a root's prompt."""
    return [
        (page.name, part.strip())
        for page in (*PAGES, ROOT / "README.md")
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for line in re.findall(r"^[$#] (.*)$", block, re.M)
        for part in re.split(r" (?:\||&&) ", line)
        if part.removeprefix(".venv/bin/").startswith("mqbridge ")
    ]


def commands_in_sentences() -> list[tuple[str, str]]:
    """Return page and words of each `mqbridge ...` between backticks."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in (*PAGES, *(ROOT / name for name in GUIDES))}
    sentences = {page: re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for page, text in texts.items()}
    return [
        (page, " ".join(code.split()))
        for page, text in sentences.items()
        for code in re.findall(r"`(mqbridge [^`]+)`", text)
    ]


def test_commands_of_sentences_exist(subtests: pytest.Subtests) -> None:
    """With the options that are told, but of `mqbridge mq … --config FILE`, which stands for several."""
    for page, line in commands_in_sentences():
        with subtests.test(page=page, line=line):
            known = {tuple(path.split()[:count]) for path in EXAMPLES for count in (1, 2)}
            words = line.partition(" | ")[0].partition(" > ")[0].split()[1:]
            path = max((tuple(words[:count]) for count in (0, 1, 2) if count == 0 or tuple(words[:count]) in known), key=len)
            assert path or words[0].startswith("-"), (page, line)
            shown = CliRunner().invoke(program, [*path, "--help"]).output
            options = [word.partition("=")[0] for word in words if word.startswith("--") and "…" not in words]
            assert [option for option in options if option not in shown] == [], (page, line)


def test_there_are_commands_to_look_at() -> None:
    assert len(commands()) > 50


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / name for name in GUIDES)], ids=lambda page: page.name)
def test_identifiers_and_reasons_that_are_told_are_explained(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    told = {*re.findall(r"\bMQB\d{4}[IWES]\b", text), *re.findall(r"\bexplain (\w+)", text)} - {"IDENTIFIER"}
    for one in sorted(told):
        assert CliRunner().invoke(program, ["explain", one]).exit_code == 0, one


def test_commands_that_are_told_exist(subtests: pytest.Subtests) -> None:
    """With the options that are told; what stands in brackets may be left out, and is looked at, too."""
    for page, line in commands():
        with subtests.test(page=page, line=line):
            _, *words = shlex.split(line.replace("[", "").replace("]", "").partition(" <<")[0], comments=True)
            shown = CliRunner().invoke(program, [*words, "--help"])
            assert shown.exit_code == 0, shown.output
            assert all(word in shown.output for word in words if word.startswith("--")), (page, line)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_configurations_that_are_told_are_right(page: Path, tmp_path: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        file = tmp_path / "bridge.yaml"
        file.write_text(block, encoding="utf-8")
        load(file)


def test_the_reference_has_every_option(reference: dict[str, str]) -> None:
    schema = json_schema()
    for model in [schema, *schema["$defs"].values()]:
        for name in model.get("properties", {}):
            assert f"| `{name}` |" in reference["configuration"], name


def test_the_reference_has_every_name_and_filter_of_templates(reference: dict[str, str]) -> None:
    """Filters, as the error for an unknown one lists them."""
    with pytest.raises(TemplateError) as error:
        Template("{topic|none}")
    known = str(error.value).partition("there are ")[2].partition(" (")[0].split(", ")
    assert {"upper", "mqname", "default:'…'"} <= {*known}
    assert [name for name in (*known, *WORDS) if f"\n| `{name}` | " not in reference["templates"]] == []
    assert [field for field in MQMD.__struct_fields__ if f"`md.{field}`" not in reference["templates"]] == []


def test_no_two_sections_of_the_reference_have_one_heading(reference: dict[str, str]) -> None:
    """Links lead to the first of them."""
    for page, text in reference.items():
        headings = re.findall(r"^#+ (.*)$", text, re.M)
        assert sorted({*headings}) == sorted(headings), page


def test_the_reference_has_every_command_and_attribute_of_mqsc(reference: dict[str, str]) -> None:
    rows = dict(re.findall(r"^\| ([A-Z]+) \| (.*) \|$", reference["mqsc"], re.M))
    assert {"DEFINE", "ALTER", "DELETE", "DISPLAY", "CLEAR", "SET", "START", "STOP", "PURGE"} <= set(rows)
    assert {"QLOCAL", "CHSTATUS", "SUB", "TPSTATUS"} <= set(rows["DISPLAY"].split(", "))
    for noun, attributes in ATTRIBUTES.items():
        section = reference["mqsc"].split(f"\n## {noun}\n")[1].partition("\n## ")[0]
        assert [name for name in attributes if f"| `{name}` |" not in section] == []


def test_the_reference_has_every_command_message_and_metric(reference: dict[str, str]) -> None:
    assert [name for name in EXAMPLES if f"\n### {name}\n" not in reference["commands"]] == []
    assert [name for name in catalogue() if f"\n## {name}\n" not in reference["messages"]] == []
    assert [one.name for one in METRICS if f"| `{one.name}` |" not in reference["metrics"]] == []


def test_the_reference_has_every_alert_and_on_call_leads_to_it(reference: dict[str, str]) -> None:
    alerts = re.findall(r"- alert: (\w+)", (ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))
    on_call = (ROOT / "docs" / "how-to" / "on-call.md").read_text(encoding="utf-8")
    assert alerts == re.findall(r"^## (\w+)$", reference["alerts"], re.M)
    assert [name for name in alerts if f"(../../deploy/alerts.yaml#{name.lower()})" not in on_call] == []
    assert "{{" not in reference["alerts"]


def test_each_attribute_of_a_telemetry_channel_has_its_option() -> None:
    """In the table of "Moving from MQXR": the attributes that MQSC knows here, too, and JAASCFG."""
    page = (ROOT / "docs" / "how-to" / "moving-from-mqxr.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", page.split("| MQXR: DEFINE CHANNEL")[1].partition("\n\n")[0], re.M)
    named = {word for row in rows for word in re.findall(r"\b[A-Z]{4,}\b", re.sub(r"\([^)]*\)", "", " ".join(row)))}
    assert {*ATTRIBUTES["CHANNEL"], "CHANNEL", "JAASCFG"} <= named
    options = {name for model in (ChannelConfig, ListenerTlsConfig, Configuration) for name in model.model_fields}
    told = {word for _, right in rows for code in re.findall(r"`(\w[^`:\[{]*)", right) for word in code.strip().split(".")}
    assert told and sorted(told - options) == []


def anchors(text: str) -> set[str]:
    """Return the anchors of a page, by its headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / name for name in GUIDES)], ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    """A link to a file that a page is generated from may have an anchor of that page."""
    hooks = module("hooks")
    made = hooks.made()
    generated = {ROOT / file: made[name] for name, file in hooks.GENERATED_FROM.items()}
    links = list(hooks.LINK.finditer(page.read_text(encoding="utf-8")))
    targets = [((page.parent / link[2]).resolve() if link[2] else page, link[3]) for link in links]
    assert [target for target, _ in targets if not target.exists()] == []
    anchored = [(target, anchor, generated.get(target)) for target, anchor in targets if anchor]
    assert [
        (target, anchor)
        for target, anchor, text in anchored
        if anchor[1:] not in anchors(target.read_text(encoding="utf-8") if text is None else text)
    ] == []


def test_a_link_into_the_repository_becomes_its_words_or_the_page_made_of_it() -> None:
    hooks = module("hooks")
    text = "[`deploy/mq`](../../deploy/mq) [safe](../../SECURITY.md#who) [o](on-call.md) [x](../../gone.py) [h](#h)"
    assert hooks.resolved(text, "how-to/service.md") == (
        "`deploy/mq` [safe](../explanation/security.md#who) [o](on-call.md) x [h](#h)",
        ["../../gone.py"],
    )
    alert = "[do](../../deploy/alerts.yaml#mqbridgedown)"
    assert hooks.resolved(alert, "how-to/on-call.md") == ("[do](../reference/alerts.md#mqbridgedown)", [])
    assert hooks.resolved("[l](docs/reference/limits.md)", "explanation/security.md") == ("[l](../reference/limits.md)", [])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_pages_are_built() -> None:
    make = ["make", "docs", f"VENV={Path(sys.executable).parents[1]}"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("how-to/moving-from-mqxr", "reference/configuration", "explanation/security"):
        assert (ROOT / "build" / "docs" / f"{page}.html").is_file()


@pytest.mark.slow
def test_pages_that_are_built_ask_nobody_elsewhere() -> None:
    pages = list((ROOT / "build" / "docs").rglob("*.html"))
    assert pages
    asked = re.compile(r"""<(?:script|img|link rel="(?:stylesheet|preconnect|icon)")[^>]*(?:src|href)="(?:https?:)?//""")
    assert [page.name for page in pages if asked.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: make docs")
@pytest.mark.parametrize("link", ["[x](nowhere.md)", "[x](on-call.md#nothing)", "[x](../../gone.py)"])
def test_a_broken_link_ends_the_build(tmp_path: Path, link: str) -> None:
    """With the arguments that `make docs` has."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv*", ".git", "build", "node_modules", ".*_cache"))
    with (copy / "docs" / "how-to" / "service.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{link}\n")
    found = re.search(r"\$\(BIN\)/mkdocs (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert found
    mkdocs = [sys.executable, "-m", "mkdocs", *shlex.split(found[1])]
    done = subprocess.run(mkdocs, cwd=copy, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 1 and "strict mode" in done.stdout + done.stderr
