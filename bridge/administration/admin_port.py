"""The client side of the admin port: reads the status of a bridge that may run on another host."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import msgspec

from bridge.administration.answers import BridgeStatus
from bridge.administration.control_socket import NoBridge

#: The maximum time that a bridge may take to answer, in seconds.
TIMEOUT: Final = 15.0


class _Overview(msgspec.Struct):
    """The part of the console's first page that is read."""

    status: BridgeStatus


def read_status(url: str, token: str = "", ca_file: Path | None = None) -> BridgeStatus:
    """Return the status of the bridge whose admin port has a URL.

    `ca_file` contains the certificate authorities for https. Without it, those of the system apply. Raises NoBridge.
    """
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=TIMEOUT) as response:
            return msgspec.json.decode(response.read(), type=_Overview).status
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 401:
                raise NoBridge(f"the bridge at {url} answers with HTTP status {error.code}") from error
        problem = "rejects the token" if token else "requires a token; hint: --token-file"
        raise NoBridge(f"the bridge at {url} {problem}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoBridge(f"no bridge answers at {url} ({reason}). Is it running?") from error
    except msgspec.DecodeError as error:
        raise NoBridge(f"the process that listens at {url} is not a bridge: {error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reports a redirect as an error, so that no other server gets the token."""

    def redirect_request(self, *_: object) -> None:
        return None
