"""What is wrong with the certificate and key files of a listener, in words, for `mqbridge check` and the log."""

from __future__ import annotations

import datetime
import ipaddress
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from bridge.config.listener_tls import ListenerTlsConfig
from bridge.security.tls import TlsError, context_of, files_of

#: Days before its end when a certificate is told of.
SOON: Final = 30


def lacking(config: ListenerTlsConfig, addresses: Sequence[str] = ()) -> Iterator[str]:
    """Yield in words what is wrong with the files of a listener's TLS.

    `addresses` are where it listens: a host name, or an address that is one machine's alone, should be the certificate's.
    """
    try:
        context_of(config)
    except TlsError as error:
        yield str(error)
        return
    yield from _of_certificate(config, addresses)
    yield from _of_revocation_lists(config)
    files = files_of(config)
    secrets = [files[name] for name in ("key_file", "key_password_file") if name in files]
    if config.key_file is None:
        secrets.append(config.certificate_file)
    for path in secrets:
        if path.stat().st_mode & stat.S_IROTH:
            yield f"{path}, which is secret, can be read by every user of this machine; `chmod o= {path}` mends that"


def _of_revocation_lists(config: ListenerTlsConfig) -> Iterator[str]:
    """Yield that a list of revoked certificates is out of date: no client of that authority gets in then."""
    from cryptography.x509 import load_pem_x509_crl

    if config.crl_file is None:
        return
    mark = b"-----BEGIN X509 CRL-----"
    for text in config.crl_file.read_bytes().split(mark)[1:]:
        end = load_pem_x509_crl(mark + text).next_update_utc
        if end is not None and end <= datetime.datetime.now(datetime.UTC):
            yield f"tls.crl_file {config.crl_file}: a list in it is out of date since {end:%Y-%m-%d}; get a new one"


def expiring(config: ListenerTlsConfig) -> Iterator[str]:
    """Yield in words that the certificate of a listener ends soon."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(config.certificate_file.read_bytes())
    except (OSError, ValueError):
        return  # `lacking` tells
    end = certificate.not_valid_after_utc
    left = end - datetime.datetime.now(datetime.UTC)
    if datetime.timedelta() < left < datetime.timedelta(days=SOON):
        yield f"tls.certificate_file {config.certificate_file} expires on {end:%Y-%m-%d}, in {left.days} days"


def _of_certificate(config: ListenerTlsConfig, addresses: Sequence[str]) -> Iterator[str]:
    from cryptography.x509 import load_pem_x509_certificate

    certificate = load_pem_x509_certificate(config.certificate_file.read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    where = f"tls.certificate_file {config.certificate_file}"
    if end <= now:
        yield f"{where} has expired on {end:%Y-%m-%d}"
    if begin > now:
        yield f"{where} is not valid before {begin:%Y-%m-%d %H:%M} UTC"
    names, numbers = _names_of(certificate)
    for address in addresses:
        try:
            number = ipaddress.ip_address(address)
        except ValueError:
            if address != "localhost" and not any(_is_for(name, address) for name in names):
                yield f"{where} is not for {address}, where it listens, but for {', '.join(names) or 'no name'}"
            continue
        # At the address of a machine it may be reached by a name that only its users know.
        if not number.is_unspecified and not number.is_loopback and number not in numbers and not names:
            yield f"{where} is for no name, and not for {address}, where it listens"


def _names_of(certificate: object) -> tuple[list[str], list[object]]:
    from cryptography.x509 import Certificate, DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    assert isinstance(certificate, Certificate)
    try:
        found = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return [], []
    return found.get_values_for_type(DNSName), list(found.get_values_for_type(IPAddress))


def _is_for(name: str, host: str) -> bool:
    """Return whether the name of a certificate, perhaps one with a wildcard, is that of a host (RFC 6125 section 6.4)."""
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])
