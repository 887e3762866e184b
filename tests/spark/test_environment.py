"""Directories of a pipeline that the workers of a cluster can access: staging directories and spools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.spark.environment import environment_of

#: A pipeline on a cluster, its mistake, and whether tasks contain the messages.
PIPELINES = [
    (
        "from: {mq: {queue: Q}}, to: {mq: {queue: R}}",
        "at most 5000, or as checkpoint a path below .*, found 10000",
        True,
    ),
    ("from: {mq: {queue: Q}}, to: {mq: {queue: R}}, batch: 5000", "", True),
    ("from: {mq: {queue: Q}}, to: {mq: {queue: R}}, checkpoint: $shared/p", "", False),
    ("from: {mq: {queue: Q}}, to: {archive: $shared/a}", "", True),
    (
        "from: {mq: {queue: Q}, options: {embed: no}}, to: {mqtt: a}",
        "embed: true, or as checkpoint a path below",
        False,
    ),
    ("from: {mq: {queue: Q}, options: {embed: no}}, to: {mqtt: a}, checkpoint: $shared/p", "", False),
    ("from: {mq: {queue: Q}, options: {Embed: yes}}, to: {mqtt: a}, checkpoint: $shared/p", "", True),
    ("from: {mq: {queue: Q}}, mapping: m, batch: 2501", "at most 2500, ", True),
    (
        "from: {archive: $shared/a}, to: {mq: {queue: R}}, batch: 10",
        "checkpoint: a path below a directory of spark",
        False,
    ),
]


@pytest.mark.parametrize(("text", "wrong", "embeds"), PIPELINES)
def test_a_cluster(text: str, wrong: str, embeds: bool, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    file = tmp_path / "bridge.yaml"
    text = text.replace("$shared", str(shared))
    file.write_text(
        f"queue_manager: {{listener: {{address: 127.0.0.1, port: 1414}}}}\nspark: {{shared: [{shared}]}}\n"
        "mappings: {m: {enabled: no, from: {queue: Q}, to: {mqtt: a}}}\n"
        f"pipelines: {{p: {{{text}}}}}\n"
    )
    configuration = load(file)
    config = configuration.pipelines["p"]
    local = environment_of(configuration, file, tmp_path)
    directory = local.directory_of("p", config)
    assert not list(local.unreachable(config, directory, stateful=False))
    assert local.embeds("p", config) == ("yes" in text)
    assert local.staged(directory).stage == {"stage": str(directory / "stage")}
    cluster = environment_of(configuration, file, tmp_path, "spark://127.0.0.1:7077")
    reported = [
        f"{'.'.join(location)}: {expected}, found {value}"
        for location, expected, value in cluster.unreachable(config, directory, stateful=False)
    ]
    assert len(reported) == bool(wrong) and all(re.search(wrong, text) for text in reported), reported
    assert cluster.embeds("p", config) == embeds
    assert bool(cluster.staged(directory).stage) == (directory.is_relative_to(shared))
