"""The configuration files of release 0.2.0 are accepted as they are, with every option of that release."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from bridge.config.document import load
from bridge.config.models import Configuration

#: It takes the files of 0.2.0 from the history.
pytestmark = pytest.mark.slow


def test_each_configuration_of_the_release_loads(release: Path) -> None:
    files = [*(release / "mappings").glob("*.yaml"), *(release / "deploy").glob("[bcs]*.yaml")]
    files = [file for file in files if file.name not in ("compose.yaml", "standard.yaml")]
    assert len(files) == 9, files
    for file in (*files, release / "deploy" / "notebooks" / "bridge.yaml"):
        assert isinstance(load(file), Configuration)


def test_the_whole_directory_of_mappings_loads(release: Path, tmp_path: Path) -> None:
    """With the standard profile, which may be in a directory of mapping files."""
    file = tmp_path / "bridge.yaml"
    shutil.copy(release / "mappings" / "standard.yaml", tmp_path)
    (tmp_path / "m.yaml").write_text("mappings: {a: {from: {mqtt: a}, to: {queue: A}}}\n")
    file.write_text("mappings: [m.yaml, standard.yaml]\n")
    assert list(load(file).mappings) == ["a"]


def test_each_option_of_the_release_is_accepted(release: Path, tmp_path: Path) -> None:
    """The shipped file lists them all, commented out with one `#`."""
    file = tmp_path / "bridge.yaml"
    file.write_text(re.sub(r"^#(?!#)", "", (release / "deploy" / "bridge.yaml").read_text(), flags=re.MULTILINE))
    assert load(file).channels[0].name == "PLAIN.MQTT"


def test_the_configuration_of_the_kubernetes_files_loads(release: Path, tmp_path: Path) -> None:
    (document,) = yaml.safe_load_all((release / "deploy" / "kubernetes" / "configmap.yaml").read_text())
    for name, text in document["data"].items():
        file = tmp_path / name
        file.write_text(text)
        if file.suffix == ".yaml":
            assert load(file).channels
