"""What mkdocs calls when it builds the pages.

The reference is made of the models, the commands and the catalogues; what README.md, ARCHITECTURE.md and SECURITY.md say
already is taken from there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: page -> its title, and the sections of README.md that it has
FROM_README: Mapping[str, tuple[str, Sequence[str]]] = {
    "tutorial.md": ("Tutorial", ("Two minutes with it", "Configuration", "The console")),
    "how-to/mq-administrator.md": (
        "For the MQ administrator",
        ("For the MQ administrator", "On IBM MQ", "As a system service", "Containers and Kubernetes"),
    ),
    "how-to/device-developer.md": ("For the device developer", ("Open to devices", "Limits worth knowing")),
    "how-to/mappings.md": ("Mappings", ("Topic mappings",)),
    "how-to/data-engineer.md": ("For the data engineer", ("Archive, audit, replay", "Pipelines on Spark")),
    "how-to/looking-after.md": ("Looking after a bridge", ("Looking after a bridge that runs", "Health and metrics")),
    "explanation/embedded-queue-manager.md": (
        "The embedded queue manager and IBM MQ",
        ("Where the embedded queue manager is not IBM MQ", "Speed"),
    ),
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made when the others are read."""
    sys.path.insert(0, str(ROOT / "docs"))
    from mkdocs.structure.files import File
    from reference import PAGES

    made = {f"reference/{name}.md": page() for name, page in PAGES.items()} | pages_of_readme()
    made["explanation/how-it-works.md"] = _without_links(_sections(_text("ARCHITECTURE.md"), ("The theory",), "How it works"))
    made["explanation/security.md"] = _without_links(_text("SECURITY.md"))
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def pages_of_readme() -> dict[str, str]:
    """Return the pages that are made of sections of README.md."""
    readme = _text("README.md")
    return {page: _without_links(_sections(readme, names, title)) for page, (title, names) in FROM_README.items()}


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _sections(text: str, names: Sequence[str], title: str) -> str:
    """Return sections of a text, without its heading where there is but one. Raises KeyError for one that is not there."""
    found = {part.partition("\n")[0]: part.partition("\n")[2] for part in re.split(r"^## ", text, flags=re.M)[1:]}
    parts = [found[name] if len(names) == 1 else f"\n## {name}\n{found[name]}" for name in names]
    return f"# {title}\n" + "".join(parts)


def _without_links(text: str) -> str:
    """Return a text whose links into the repository, or to other sections of its file, are their words."""
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
