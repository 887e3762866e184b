"""Options of a data source that say how TLS is spoken to a broker, or to the listener of an embedded queue manager."""

from __future__ import annotations

from typing import Any, Final

from bridge.spark.options import Options

#: Names of Spark options -> keys of the YAML (ClientTlsConfig).
TLS_OPTIONS: Final = {
    "tlsCaFile": "ca_file",
    "tlsCertificateFile": "certificate_file",
    "tlsKeyFile": "key_file",
    "tlsKeyPasswordVariable": "key_password_variable",
    "tlsCheckHostName": "check_host_name",
}


def tls_of(options: Options) -> dict[str, Any] | None:
    """Return the section `tls` as the YAML would have it; None where there is no TLS. Raises OptionError."""
    given = [name for name in TLS_OPTIONS if name in options]
    if not options.truth("tls", bool(given)):
        if given:
            raise options.wrong(given[0], "no value, because tls is false")
        return None
    written: dict[str, Any] = {}
    for name in given:
        if name.endswith("File"):
            value: Any = options.path(name)
        else:
            value = options.truth(name, True) if name == "tlsCheckHostName" else options.text(name)
        written[TLS_OPTIONS[name]] = value
    return written
