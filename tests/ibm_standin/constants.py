"""Writes cmqc_constants.h, the numbers of tests/ibm_standin/cmqc.py as a C header.

Usage, in the repository: python3 -m tests.ibm_standin.constants > cmqc_constants.h

The numbers have a single source, which the tests compare with the real packages. The script imports only the standard
library, because the stand-in may be built before the bridge is installed.
"""

from __future__ import annotations

import sys

from tests.ibm_standin import cmqc


def header(constants: dict[str, object]) -> str:
    """Return the header's text: the integers and the strings among the constants."""
    lines = [
        "/* Made by constants.py from tests/ibm_standin/cmqc.py. */",
        "#ifndef CMQC_CONSTANTS_H",
        "#define CMQC_CONSTANTS_H",
    ]
    for name, value in constants.items():
        if name.startswith("MQ") and isinstance(value, int):
            lines.append(f"#define {name} ({value})" if value < 0 else f"#define {name} {value}")
        elif name.startswith("MQ") and isinstance(value, bytes):
            if name.startswith("MQFMT_"):  # a Format has eight characters
                value = value.ljust(8)
            text = "".join(chr(byte) if chr(byte).isalnum() or byte in b" .*" else f"\\{byte:03o}" for byte in value)
            lines.append(f'#define {name} "{text}"')
    return "\n".join([*lines, "#endif", ""])


if __name__ == "__main__":
    sys.stdout.write(header(vars(cmqc)))
