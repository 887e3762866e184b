"""The headers of the stand-in, the structures of the bridge and the packages agree on all offsets and constants."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.client_packages import BUILD
from tests.helpers.client_programs import environment
from tests.helpers.mqi_layout import of_headers
from tests.ibm_standin import cmqc, structures

ROOT = Path(__file__).resolve().parents[3]
#: The headers have newer versions of structures than pymqi. A caller's Version makes the additional fields inaccessible.
NEWER = {"pymqi": {"MQCD": [1988, 2000], "MQSCO": [628, 672]}, "ibmmq": {}}
#: pymqi's constants come from the headers of another platform.
PLATFORM = {"pymqi": {"MQPL_NATIVE", "MQAT_DEFAULT"}, "ibmmq": set()}
COMPARED = {"pymqi": 260, "ibmmq": 380}


@pytest.mark.smoke
def test_offsets(package: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.helpers.mqi_layout", package, str(BUILD / "inc")],
        env=environment(package),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(process.stdout)
    assert results["differ"] == NEWER[package]
    assert results["compared"] >= COMPARED[package]


def test_offsets_of_the_bridge() -> None:
    python: dict[str, int] = {}
    for name in ("MQOD", "MQPMO", "MQGMO", "MQSD", "MQSRO", "MQSTS", "MQMD"):
        structure: structures.Structure = getattr(structures, name if name != "MQMD" else "_MD")
        python |= {f"{name}.{field}": offset for field, (offset, _) in structure.places.items()}
        python[name] = max(structure.lengths.values())
    assert of_headers(BUILD / "inc", python) == python


def test_library_and_bridge_have_the_same_lengths_of_versions() -> None:
    """The headers of the library define the length of each version. The bridge rejects any other length."""
    source = (ROOT / "tests" / "ibm_standin" / "src" / "structures.c").read_text()
    for name in ("MQOD", "MQPMO", "MQGMO", "MQSTS", "MQMD"):
        structure: structures.Structure = getattr(structures, name if name != "MQMD" else "_MD")
        (text,) = re.findall(rf"\{{((?:BEFORE\({name}, \w+\),\s*)*WHOLE\({name}\))\}}", source)
        first = re.findall(r"BEFORE\(\w+, (\w+)\)", text)
        ends = [structure.places[field][0] for field in first]
        assert [*ends, max(structure.lengths.values())] == list(structure.lengths.values()), name


@pytest.mark.smoke
def test_constants(package: str) -> None:
    """Each constant of the bridge that a package also has is the same there."""
    program = (
        "import json; from {} import CMQC; "
        "print(json.dumps(dict((name, value) for name, value in vars(CMQC).items() if type(value) is int)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program.format(package)],
        env=environment(package),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(process.stdout)
    ours = {name: value for name, value in vars(cmqc).items() if name.startswith("MQ") and isinstance(value, int)}
    both = ours.keys() & theirs.keys()
    assert len(both) > 600
    both -= PLATFORM[package]
    differing = {name: (ours[name], theirs[name]) for name in both if (ours[name] ^ theirs[name]) & 0xFFFFFFFF}
    assert not differing
