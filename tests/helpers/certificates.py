"""Certificates for tests, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.helpers.installed import program


def make(directory: Path, days: int = 2) -> None:
    """Make ca.pem, and server and client, each .pem and .key. The server's is for localhost, the client's key has a
    password.
    """
    program("openssl")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    openssl(
        "req", "-x509", *key, "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=CA", "-days", str(days)
    )
    for name, subject, protection in (
        ("server", "localhost", ("-nodes",)),
        ("client", "client", ("-passout", "pass:p4ss")),
    ):
        openssl("req", *key, *protection, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        (directory / "ext").write_text(f"subjectAltName=DNS:{subject}\n")
        openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            f"{name}.pem",
            "-extfile",
            "ext",
            "-days",
            str(days),
        )


def tls_settings(certificates: Path, *more: str) -> tuple[str, ...]:
    """Return the lines of mosquitto.conf for a listener with them."""
    files = (
        f"cafile {certificates}/ca.pem",
        f"certfile {certificates}/server.pem",
        f"keyfile {certificates}/server.key",
    )
    return (*files, *more)
