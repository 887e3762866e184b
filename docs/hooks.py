"""Hooks of mkdocs: two pages from the root of the repository, and links that lead out of docs/.

Pages link to files of the repository, so that the links also work where the repository is browsed. The built site has no such
files. There, a link to ARCHITECTURE.md or SECURITY.md leads to the page with its text, and any other link becomes plain text.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: A warning of a logger below this one ends a build that is strict.
log = logging.getLogger("mkdocs.hooks")

#: page -> the file at the root of the repository with its text
COPIED_FROM: dict[str, str] = {
    "explanation/how-it-works.md": "ARCHITECTURE.md",
    "explanation/security.md": "SECURITY.md",
}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are copied from the root of the repository."""
    from mkdocs.structure.files import File

    for name, content in copied().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page's text with its links to files of the repository resolved."""
    text, missing = resolved(markdown, page.file.src_uri)
    for target in missing:
        log.warning("%s: broken link to %s", page.file.src_uri, target)
    return text


def copied() -> dict[str, str]:
    """Return the text of each page that is copied, by name."""
    theory = _text("ARCHITECTURE.md").partition("\n## How it works\n")[2].partition("\n## Layers\n")[0]
    return {
        "explanation/how-it-works.md": f"# How it works\n{theory}",
        "explanation/security.md": _text("SECURITY.md"),
    }


def resolved(text: str, page: str) -> tuple[str, list[str]]:
    """Return a page's text with its links resolved, and the targets that do not exist in the repository."""
    missing = []

    def resolve(link: re.Match[str]) -> str:
        label, target, anchor = link[1], link[2], link[3] or ""
        if not target:
            return link[0]
        folder = posixpath.dirname(COPIED_FROM.get(page) or f"docs/{page}")
        path = posixpath.normpath(posixpath.join(folder, target))
        pages = {file: f"docs/{name}" for name, file in COPIED_FROM.items()} | {"README.md": "docs/index.md"}
        to = pages.get(path, path)
        if to.startswith("docs/"):
            return f"[{label}]({posixpath.relpath(to, posixpath.dirname(f'docs/{page}'))}{anchor})"
        if not (ROOT / path).exists():
            missing.append(target)
        return label

    return LINK.sub(resolve, text), missing


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
