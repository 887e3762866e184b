"""TLS of connections that are made, as their section of the configuration says."""

from __future__ import annotations

import os
import ssl

from bridge.config.client_tls import ClientTlsConfig


def tls_context(config: ClientTlsConfig) -> ssl.SSLContext:
    """Make the context for a connection.

    Made anew for each connection, so that renewed certificates count without a restart. Raises OSError (SSLError is
    one) where a file cannot be read or is no certificate or key, or the variable of the key's password is not set.
    """
    try:
        context = ssl.create_default_context(cafile=None if config.ca_file is None else str(config.ca_file))
    except OSError as error:
        raise OSError(f"tls.ca_file {config.ca_file} cannot be used: {error}") from error
    # Since Python 3.13 contexts refuse certificates that miss a detail of RFC 5280, as many a private authority's do; what is
    # trusted is not to depend on the release of Python.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not config.check_host_name:
        context.check_hostname = False
    if config.certificate_file is not None:
        try:
            context.load_cert_chain(
                str(config.certificate_file),
                None if config.key_file is None else str(config.key_file),
                # As a function: given None, OpenSSL would ask for the password at the terminal.
                lambda: _key_password(config.key_password_variable),
            )
        except OSError as error:
            raise OSError(
                f"tls.certificate_file {config.certificate_file} and key_file {config.key_file or 'in it'} cannot be"
                f" used: {error}"
            ) from error
    return context


def _key_password(variable: str | None) -> str:
    if variable is None:
        raise OSError("the key has a password; name the environment variable that has it as tls.key_password_variable")
    password = os.environ.get(variable)
    if password is None:
        raise OSError(f"the environment variable {variable} (tls.key_password_variable) is not set")
    return password
