"""What pipelines of one file do to each other, and to themselves: queues and directories that they read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os.path import normpath
from pathlib import Path
from typing import Any, Final

from bridge.config.problems import Clash

#: Sections that say where a pipeline writes, and the queues that they name.
_WRITTEN: Final = ("to", "late", "dead_letters")
_QUEUES: Final = (*((section, "mq", "queue") for section in _WRITTEN), ("dead_letters", "queue"))


def flow_clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the clashes of pipelines in `data` (plain values of a file) over a queue or a directory.

    Only one enabled pipeline reads a queue, because what is read is removed, unless it browses; and none writes where it
    reads. Like `bridge.config.models.clashes`, the function passes over what is not of the right type.
    """
    listed = data.get("pipelines")
    readers: dict[str, str] = {}
    found: list[Clash] = []
    for name, pipeline in listed.items() if isinstance(listed, Mapping) else ():
        if not isinstance(pipeline, Mapping):
            continue
        queue = _at(pipeline, "from", "mq", "queue")
        browses = str(_at(pipeline, "from", "options", "browse")).lower() == "true"
        takes = isinstance(queue, str) and pipeline.get("enabled", True) is True and not browses
        if takes and readers.setdefault(queue, name) != name:
            expected, again = "a queue that no other enabled pipeline reads", f"which pipeline {readers[queue]} reads"
            found.append(Clash(("pipelines", name, "from", "mq", "queue"), expected, f"{queue!r} again, {again}"))
        found += _circles(str(name), pipeline)
        found += _streamed(str(name), pipeline, data)
    return found


def _streamed(name: str, pipeline: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Clash]:
    """Yield a clash where a pipeline compacts an archive that one streams: files made anew would be new rows for it."""
    written, pipelines = _at(pipeline, "to", "archive"), data["pipelines"]
    if written is None or _at(pipeline, "to", "compact") is None:
        return
    for other in pipelines:
        read = _at(data, "pipelines", other, "from", "archive")
        if read is not None and Path(normpath(str(written))).is_relative_to(normpath(str(read))):
            found = f"an archive that pipeline {other} streams, for which files that are made anew would have new rows"
            yield Clash(("pipelines", name, "to", "compact"), "no compact", found)


def _circles(name: str, pipeline: Mapping[str, Any]) -> Iterator[Clash]:
    """Yield a clash for each place that a pipeline reads and writes, so that it would never come to an end."""
    for what, source, destinations in (
        ("queue", ("mq", "queue"), _QUEUES),
        ("topic", ("mq", "topic"), tuple((section, "mq", "topic") for section in _WRITTEN)),
        ("directory", ("archive",), tuple((section, "archive") for section in _WRITTEN)),
    ):
        read = _at(pipeline, "from", *source)
        for place in destinations:
            if read is not None and (written := _at(pipeline, *place)) is not None and str(written) == str(read):
                yield Clash(("pipelines", name, *place), f"another {what} than the one that it reads")


def _at(section: Any, *keys: str) -> Any:
    """Return what stands at a place below a section; None where nothing does."""
    for key in keys:
        section = section.get(key) if isinstance(section, Mapping) else None
    return section
