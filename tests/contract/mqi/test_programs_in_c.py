"""C programs for IBM MQ, with the headers and the library of the stand-in."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.client_packages import BUILD
from tests.helpers.client_programs import Manager
from tests.helpers.patience import PATIENCE

INCLUDES = Path(__file__).resolve().parents[3] / "tests" / "ibm_standin" / "inc"
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <cmqc.h>
#include <cmqxc.h>

int main(int argc, char **argv)
{
    MQCNO cno = {MQCNO_DEFAULT};
    MQOD od = {MQOD_DEFAULT};
    MQMD md = {MQMD_DEFAULT}, got = {MQMD_DEFAULT};
    MQPMO pmo = {MQPMO_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    MQSTS sts = {MQSTS_DEFAULT};
    MQHCONN connection;
    MQHOBJ object;
    MQLONG code, reason, length;
    char body[16] = "";
    MQCONNX("MQB1", &cno, &connection, &code, &reason);
    printf("%d", reason);
    strncpy(od.ObjectName, argv[argc - 1], sizeof od.ObjectName);
    MQOPEN(connection, &od, MQOO_OUTPUT | MQOO_INPUT_SHARED, &object, &code, &reason);
    printf(" %d", reason);
    memcpy(md.Format, MQFMT_STRING, MQ_FORMAT_LENGTH);
    MQPUT(connection, object, &md, &pmo, 5, "hello", &code, &reason);
    printf(" %d", reason);
    MQGET(connection, object, &got, &gmo, sizeof body, body, &length, &code, &reason);
    printf(" %d %.8s %d %s", reason, got.Format, got.Persistence, body);
    MQSTAT(connection, MQSTAT_TYPE_ASYNC_ERROR, &sts, &code, &reason);
    printf(" %d", reason);
    MQCLOSE(connection, &object, MQCO_NONE, &code, &reason);
    MQDISC(&connection, &code, &reason);
    printf(" %d\\n", reason);
    return 0;
}
"""


def compiled(directory: Path, source: str) -> Path:
    """Compile a program without warnings."""
    (directory / "program.c").write_text(source)
    options = ["-Wall", "-Wextra", "-Werror", f"-I{BUILD / 'inc'}", f"-L{BUILD / 'lib64'}", "-o", directory / "program"]
    subprocess.run(["cc", directory / "program.c", *options, "-lmqm_r"], check=True)
    return directory / "program"


def test_a_program_with_the_initial_values(manager: Manager, queue: str, tmp_path: Path) -> None:
    variables = {"LD_LIBRARY_PATH": str(BUILD / "lib64"), "MQI_STANDIN": manager.place}
    process = subprocess.run(
        [compiled(tmp_path, PROGRAM), queue],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert process.stdout.split() == ["0", "0", "0", "0", "MQSTR", "0", "hello", "0", "0"]


@pytest.mark.parametrize("name", re.findall(r"#define (MQ\w+)_DEFAULT", (INCLUDES / "cmqc_defaults.h").read_text()))
def test_each_structure_has_its_initial_values(name: str, tmp_path: Path) -> None:
    structure = name.removesuffix("_CLIENT_CONN")
    includes = "#include <cmqc.h>\n#include <cmqxc.h>\n"
    compiled(
        tmp_path, f"{includes}int main(void) {{ {structure} one = {{{name}_DEFAULT}}; return sizeof one == 0; }}\n"
    )
