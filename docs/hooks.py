"""What mkdocs calls when it builds the pages.

The reference is made of the models, the commands and the catalogues; what ARCHITECTURE.md and SECURITY.md say is taken from
there. Pages link to files of the repository, so that their links also work where the repository is browsed. In the built
pages, such a link leads to the page that was generated from the file.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: A warning of a logger below this one ends a build that is strict.
log = logging.getLogger("mkdocs.hooks")

#: page -> the file of the repository that it is made of
MADE_OF: dict[str, str] = {
    "explanation/how-it-works.md": "ARCHITECTURE.md",
    "explanation/security.md": "SECURITY.md",
}
#: page of the reference -> the file or directory of the repository to which links lead
GENERATED_FROM: dict[str, str] = {
    "reference/configuration.md": "deploy/bridge.yaml",
    "reference/templates.md": "bridge/mapping/rules/template.py",
    "reference/commands.md": "bridge/cli/program.py",
    "reference/messages.md": "bridge/log_messages/rooms",
    "reference/metrics.md": "bridge/service/metrics/catalogue.py",
    "reference/alerts.md": "deploy/alerts.yaml",
    "reference/mqsc.md": "bridge/mq/embedded/attributes.py",
}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made when the others are read."""
    from mkdocs.structure.files import File

    for name, content in made().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page's text with its links to files of the repository resolved."""
    text, missing = resolved(markdown, page.file.src_uri)
    for target in missing:
        log.warning("%s: the link to %s leads nowhere", page.file.src_uri, target)
    return text


def made() -> dict[str, str]:
    """Return the pages that are made, by name."""
    sys.path.insert(0, str(ROOT / "docs"))
    from reference import PAGES

    pages = {f"reference/{name}.md": page() for name, page in PAGES.items()}
    theory = _text("ARCHITECTURE.md").partition("\n## How it works\n")[2].partition("\n## Layers\n")[0]
    pages["explanation/how-it-works.md"] = f"# How it works\n{theory}"
    pages["explanation/security.md"] = _text("SECURITY.md")
    return pages


def resolved(text: str, page: str) -> tuple[str, list[str]]:
    """Return a page's text whose links out of docs/ are their words, or lead to the page made of what they name.

    Also returns what they name and is not in the repository.
    """
    missing = []

    def resolve(link: re.Match[str]) -> str:
        label, target, anchor = link[1], link[2], link[3] or ""
        if not target:
            return link[0]
        folder = posixpath.dirname(MADE_OF.get(page) or f"docs/{page}")
        path = posixpath.normpath(posixpath.join(folder, target))
        known = {file: f"docs/{name}" for name, file in (MADE_OF | GENERATED_FROM).items()} | {"README.md": "docs/index.md"}
        to = known.get(path, path)
        if to.startswith("docs/"):
            return f"[{label}]({posixpath.relpath(to, posixpath.dirname(f'docs/{page}'))}{anchor})"
        if not (ROOT / path).exists():
            missing.append(target)
        return label

    return LINK.sub(resolve, text), missing


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
