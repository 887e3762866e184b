"""TLS contexts for listeners and clients, and checks of certificate files."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.config.models import Configuration
from bridge.config.queue_manager import (
    EmbeddedQueueManagerConfig,
    IbmQueueManagerConfig,
    NoPassword,
    TlsConfig,
    read_password,
)
from bridge.config.tls import ANY_CIPHER, CIPHER_SPECS, ClientTlsConfig, ListenerTlsConfig
from bridge.security.authenticator import Certificate

log = logging.getLogger(__name__)

#: The environment variable with systemd's credentials directory (systemd.exec, LoadCredential=).
CREDENTIALS = "CREDENTIALS_DIRECTORY"

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFICATION = {"never": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_ATTRIBUTES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED = str.maketrans({character: f"\\{character}" for character in '\\,+"<>;='})


class TlsError(Exception):
    """The configured TLS cannot be used. The message contains the file and the reason."""


class ListenerTls:
    """The TLS context of a listener, reloaded when its files change."""

    def __init__(self, name: str, config: ListenerTlsConfig, protocols: Sequence[str] = ()) -> None:
        """Read the files. `name` identifies the listener in the log; `protocols` are for ALPN. Raises TlsError."""
        self._name = name
        self._protocols = protocols
        self.config = config
        self._stamps = self._files()
        self.context = context_of(config, protocols)

    def reload_if_changed(self) -> None:
        """Reload changed files. Errors are logged, and the previous context stays in use."""
        stamps = self._files()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self.context = context_of(self.config, self._protocols)
        except TlsError as error:
            log.error("MQB1101E %s: loading changed TLS files failed, keeping the previous ones: %s", self._name, error)
        else:
            log.info("MQB1102I %s: loaded changed TLS files", self._name)

    def _files(self) -> tuple[object, ...]:
        return tuple(map(_stamp_of, files_of(self.config).values()))


def files_of(config: ListenerTlsConfig) -> dict[str, Path]:
    """Return the files that a listener's TLS configuration refers to, by option name."""
    names = ("certificate_file", "key_file", "key_password_file", "ca_file", "crl_file")
    return {name: path for name in names if (path := getattr(config, name)) is not None}


def context_of(config: ListenerTlsConfig, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the TLS context of a listener. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepted = [_VERSIONS[version] for version in config.accepted_versions]
    context.minimum_version, context.maximum_version = min(accepted), max(accepted)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if config.ciphers not in ANY_CIPHER:
        try:
            context.set_ciphers(CIPHER_SPECS.get(config.ciphers, config.ciphers))
        except ssl.SSLError:
            raise TlsError(f"tls.ciphers: {config.ciphers} contains no cipher of this machine's OpenSSL") from None
    try:
        # A function, because OpenSSL would prompt on the terminal if given None.
        context.load_cert_chain(config.certificate_file, config.key_file, lambda: _key_password(config))
    except NoPassword as error:
        raise TlsError(str(error)) from error
    except OSError as error:
        key = f" and key_file {config.key_file}" if config.key_file is not None else ""
        raise TlsError(
            f"tls.certificate_file {config.certificate_file}{key} cannot be used: {reason_of(error)}"
        ) from error
    context.verify_mode = _VERIFICATION[config.client_certificates]
    # Python 3.13 enables strict RFC 5280 checks. Trust must not depend on the Python version.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    for option, path in (("ca_file", config.ca_file), ("crl_file", config.crl_file)):
        if path is None:
            continue
        try:
            context.load_verify_locations(path)
        except OSError as error:
            raise TlsError(f"tls.{option} {path} cannot be used: {reason_of(error)}") from error
    if config.crl_file is not None:
        if not context.cert_store_stats()["crl"]:
            raise TlsError(
                f"tls.crl_file {config.crl_file} contains no certificate revocation list (-----BEGIN X509 CRL-----)"
            )
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def certificate_of(stream: ssl.SSLObject) -> Certificate | None:
    """Return the peer's verified certificate, or None if it sent none."""
    peer_certificate: dict[str, Any] | None = stream.getpeercert()
    if not peer_certificate:
        return None
    subject = [pair for part in peer_certificate.get("subject", ()) for pair in part]
    names = [value for name, value in subject if name == "commonName"]
    alternatives = tuple(value for kind, value in peer_certificate.get("subjectAltName", ()) if isinstance(value, str))
    issuer = [pair for part in peer_certificate.get("issuer", ()) for pair in part]
    return Certificate(
        _distinguished_name(subject), names[-1] if names else "", alternatives, _distinguished_name(issuer)
    )


def reason_of(error: OSError) -> str:
    """Return a description of an OpenSSL or system error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was rejected: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason) or error.reason.replace("_", " ").lower()
    if isinstance(error, ssl.SSLError) and "PEM lib" in str(error):
        return _REASONS["NO_START_LINE"]
    return error.strerror or str(error)


_REASONS = {
    "BAD_DECRYPT": "the password of the key is wrong",
    "HTTP_REQUEST": "it speaks HTTP without TLS",
    "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
    "NO_SHARED_CIPHER": "it supports no cipher of the channel",
    "NO_START_LINE": "it contains no PEM data",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate",
    "UNSUPPORTED_PROTOCOL": "it supports no TLS version of the channel",
    "WRONG_VERSION_NUMBER": "it does not use TLS",
}


def _key_password(config: ListenerTlsConfig) -> str:
    file, variable = config.key_password_file, config.key_password_variable
    key = f"key {config.key_file or config.certificate_file}"
    if config.key_password_credential is not None:
        directory = os.environ.get(CREDENTIALS)
        if directory is None:
            raise NoPassword(f"no password for {key}: systemd has loaded no credentials (key_password_credential)")
        file = Path(directory, config.key_password_credential)
    elif file is None and variable is None:
        raise NoPassword(f"{key} has a password; set tls.key_password_file to a file that contains it")
    return read_password(key, file, variable, os.environ)


def escaped(value: str) -> str:
    """Escape an attribute value for a distinguished name (RFC 4514 section 2.4)."""
    return value.translate(_ESCAPED)


def _distinguished_name(pairs: list[tuple[str, str]]) -> str:
    """Return a distinguished name in the format of IBM MQ and RFC 4514, most specific part first."""
    return ",".join(f"{_ATTRIBUTES.get(name, name)}={escaped(value)}" for name, value in reversed(pairs))


def _stamp_of(path: Path) -> object:
    """Return a stamp of a file, which changes when the file changes."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_size, status.st_mtime_ns


def tls_context(config: ClientTlsConfig, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return a TLS context for one outgoing connection. It offers the ALPN protocols `alpn` (RFC 7301).

    A new context for each connection picks up renewed certificates without a restart. Raises OSError (including SSLError) if
    a file is unreadable or invalid, or the key's password variable is not set.
    """
    try:
        context = ssl.create_default_context(cafile=None if config.ca_file is None else str(config.ca_file))
    except OSError as error:
        raise OSError(f"tls.ca_file {config.ca_file} cannot be used: {error}") from error
    # Python 3.13 enables strict RFC 5280 checks, which certificates of many private authorities fail. Trust must not depend
    # on the Python version.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if not config.check_host_name:
        context.check_hostname = False
    if config.certificate_file is not None:
        try:
            context.load_cert_chain(
                str(config.certificate_file),
                None if config.key_file is None else str(config.key_file),
                # A function, because OpenSSL would prompt on the terminal if given None.
                lambda: _client_key_password(config.key_password_variable),
            )
        except OSError as error:
            raise OSError(
                f"tls.certificate_file {config.certificate_file} and key_file {config.key_file or 'in it'} cannot be"
                f" used: {error}"
            ) from error
    return context


def _client_key_password(variable: str | None) -> str:
    if variable is None:
        raise OSError(
            "the key has a password; set tls.key_password_variable to an environment variable that contains it"
        )
    password = os.environ.get(variable)
    if password is None:
        raise OSError(f"the environment variable {variable} (tls.key_password_variable) is not set")
    return password


#: Days before expiry at which a certificate is reported.
SOON: Final = 30


def lacking(config: ListenerTlsConfig, addresses: Sequence[str] = ()) -> Iterator[str]:
    """Yield a description of each problem with a listener's TLS files.

    `addresses` are the listening addresses. A host name, or an address of a single machine, should be in the certificate.
    """
    try:
        context_of(config)
    except TlsError as error:
        yield str(error)
        return
    yield from _of_certificate(config, addresses)
    yield from _of_revocation_lists(config)


def _of_revocation_lists(config: ListenerTlsConfig) -> Iterator[str]:
    """Yield a problem if a revocation list is out of date: all clients of that authority are rejected then."""
    from cryptography.x509 import load_pem_x509_crl

    if config.crl_file is None:
        return
    mark = b"-----BEGIN X509 CRL-----"
    for text in config.crl_file.read_bytes().split(mark)[1:]:
        end = load_pem_x509_crl(mark + text).next_update_utc
        if end is not None and end <= datetime.datetime.now(datetime.UTC):
            yield f"tls.crl_file {config.crl_file}: a list in it expired on {end:%Y-%m-%d}; get a new one"


def _of_certificate(config: ListenerTlsConfig, addresses: Sequence[str]) -> Iterator[str]:
    from cryptography.x509 import load_pem_x509_certificate

    certificate = load_pem_x509_certificate(config.certificate_file.read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    file = f"tls.certificate_file {config.certificate_file}"
    if end <= now:
        yield f"{file} expired on {end:%Y-%m-%d}"
    if begin > now:
        yield f"{file} is not valid before {begin:%Y-%m-%d %H:%M} UTC"
    names, numbers = _names_of(certificate)
    for address in addresses:
        try:
            number = ipaddress.ip_address(address)
        except ValueError:
            if address != "localhost" and not any(_is_for(name, address) for name in names):
                yield f"{file} does not contain the listening address {address}, only {', '.join(names) or 'no name'}"
            continue
        # Clients may connect to an IP address by a host name that the bridge does not know.
        if not number.is_unspecified and not number.is_loopback and number not in numbers and not names:
            yield f"{file} contains no name and not the listening address {address}"


def _names_of(certificate: object) -> tuple[list[str], list[object]]:
    from cryptography.x509 import Certificate, DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    assert isinstance(certificate, Certificate)
    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return [], []
    return names.get_values_for_type(DNSName), list(names.get_values_for_type(IPAddress))


def _is_for(name: str, host: str) -> bool:
    """Return whether a certificate's name, which may have a wildcard, matches a host (RFC 6125 section 6.4)."""
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])


class CertificateInUse(NamedTuple):
    """A certificate of the bridge."""

    #: `channel`, `admin`, `queue_manager` (the listener for MQ applications), `link`, `spark` or `key_repository`
    use: str
    #: name of the channel or link
    name: str
    #: the option that names the file, in the section of its user
    option: str
    file: Path
    #: seconds since the epoch
    expiry: float

    @property
    def owner(self) -> str:
        """The user of the certificate, in words."""
        return f"{self.use} {self.name}" if self.name else self.use.replace("_", " ")

    @property
    def days_left(self) -> float:
        """Days until it expires. Negative if it has expired."""
        return (self.expiry - time.time()) / 86_400

    @property
    def date(self) -> str:
        """The day on which it expires."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.expiry))


def certificates_in_use(configuration: Configuration) -> Iterator[CertificateInUse]:
    """Yield the certificates of listeners, links, Spark and the key repository. Reads files.

    Missing and unreadable files are left out, and so are CMS key repositories (`.kdb`), which only IBM's library can read.
    """
    for use, name, file in _certificate_files(configuration):
        try:
            expiry = _expiry(file, file.stat().st_mtime_ns)
        except (OSError, ValueError) as error:
            log.debug("certificate file %s: %s", file, error)
        else:
            yield CertificateInUse(use, name, "tls.certificate_file", file, expiry)
    settings = configuration.queue_manager
    if isinstance(settings, IbmQueueManagerConfig) and settings.tls is not None:
        file = settings.tls.files["key_repository"]
        try:
            expiry_time = _expiry_in_repository(file, file.stat().st_mtime_ns, _repository_password(settings.tls))
        except (OSError, ValueError) as error:
            log.debug("key repository %s: %s", file, error)
        else:
            if expiry_time is not None:
                yield CertificateInUse("key_repository", "", "queue_manager.tls.key_repository", file, expiry_time)


@lru_cache(1_000)
def _expiry(file: Path, changed: int) -> float:
    """Return the expiry date of the first certificate of a file that was changed at a time. Raises OSError, ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()


@lru_cache(10)
def _expiry_in_repository(file: Path, changed: int, password: str) -> float | None:
    """Return the expiry date of the own certificate in a PKCS#12 file; None if there is none. Raises OSError, ValueError."""
    from cryptography.hazmat.primitives.serialization import pkcs12

    _, certificate, _ = pkcs12.load_key_and_certificates(file.read_bytes(), password.encode())
    return None if certificate is None else certificate.not_valid_after_utc.timestamp()


def _repository_password(tls: TlsConfig) -> str:
    """Return the password of a key repository. Raises OSError if it is in a stash file, which only IBM's library can read."""
    file, variable = tls.key_repository_password_file, tls.key_repository_password_variable
    return read_password("the key repository", file, variable, os.environ)


def _certificate_files(configuration: Configuration) -> Iterator[tuple[str, str, Path]]:
    for listener, name, tls in _listeners(configuration):
        yield listener, name, tls.certificate_file
    clients = [("link", name, link.tls) for name, link in configuration.links.items()]
    for use, name, client in (*clients, ("spark", "", configuration.spark.tls)):
        if client is not None and client.certificate_file is not None:
            yield use, name, client.certificate_file


def _listeners(configuration: Configuration) -> Iterator[tuple[str, str, ListenerTlsConfig]]:
    """Yield the type, channel name and TLS configuration of each listener that has TLS."""
    for channel in configuration.channels:
        if channel.tls is not None:
            yield "channel", channel.name, channel.tls
    if configuration.admin.tls is not None:
        yield "admin", "", configuration.admin.tls
    settings = configuration.queue_manager
    if isinstance(settings, EmbeddedQueueManagerConfig) and settings.listener is not None:
        tls = settings.listener.tls
        if tls is not None:
            yield "queue_manager", "", tls
