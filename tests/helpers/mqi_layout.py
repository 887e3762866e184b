"""Field offsets of structures in a package and in a C program: `python -m tests.helpers.mqi_layout PACKAGE INC`.

For each structure, the packages have a list of names and formats of the `struct` module. A C program with the same names
prints its own offsets, from the headers in INC. Differences are printed as JSON.
"""

from __future__ import annotations

import importlib
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STRUCTURES = (
    *("GMO", "PMO", "OD", "MD", "SD", "CD", "SCO", "SRO", "CMHO", "PD", "SMPO", "IMPO", "CNO", "CSP", "STS"),
    *("CBD", "CBC", "CTLO", "DMHO", "DMPO", "BNO"),
)
_STRINGS = ("VSPtr", "VSOffset", "VSBufSize", "VSLength", "VSCCSID")
#: ibmmq's own fillers at the end of structures.
_FILLERS = {("MQCBD", "Reserved1"), ("MQCBC", "Reserved1")}
#: ibmmq shows these pointers without the `Ptr` of their names.
_POINTERS = ("MQSCO", "MQCSP", "MQCNO")


def of_package(package: str) -> dict[str, int]:
    """ "structure.field" -> offset, "structure" -> size."""
    module = importlib.import_module(package)
    places: dict[str, int] = {}
    for name in STRUCTURES:
        cls = getattr(module, name, None)
        if cls is None:
            continue
        structure = cls()
        places[f"MQ{name}"] = struct.calcsize(structure._MQOpts__format)
        form = ""
        for field, _, code, *count in structure._MQOpts__list:
            form += code * (count[0] if count else 1)
            width = struct.calcsize(code * (count[0] if count else 1))
            member = _member(f"MQ{name}", field.lstrip("_"), code)
            if member is not None:
                places[f"MQ{name}.{member}"] = struct.calcsize(form) - width
    return places


def _member(structure: str, field: str, code: str) -> str | None:
    """Return the C name of a package's field, or None for padding."""
    if "pad" in field.lower() or (structure, field) in _FILLERS:
        return None
    for part in _STRINGS:
        if field.endswith(part):
            return f"{field.removesuffix(part)}.{part}"
    return f"{field}Ptr" if structure in _POINTERS and code == "P" and not field.endswith("Ptr") else field


def of_headers(includes: Path, places: dict[str, Any]) -> dict[str, int]:
    """Return the same from a C program."""
    lines = ["#include <stdio.h>", "#include <stddef.h>", "#include <cmqc.h>", "#include <cmqxc.h>", "int main(void) {"]
    for place in places:
        structure, _, member = place.partition(".")
        value = f"offsetof({structure}, {member})" if member else f"sizeof({structure})"
        lines.append(f'printf("%zu\\n", (size_t){value});')
    with tempfile.TemporaryDirectory() as directory:
        source, program = Path(directory, "layout.c"), Path(directory, "layout")
        source.write_text("\n".join([*lines, "return 0; }"]))
        subprocess.run(["gcc", f"-I{includes}", "-o", program, source], check=True)
        printed = subprocess.check_output([program], text=True).split()
    return dict(zip(places, map(int, printed), strict=True))


if __name__ == "__main__":
    python = of_package(sys.argv[1])
    c = of_headers(Path(sys.argv[2]), python)
    json.dump(
        {
            "compared": len(python),
            "differ": {place: [python[place], c[place]] for place in c if python[place] != c[place]},
        },
        sys.stdout,
    )
