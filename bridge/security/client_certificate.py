"""Who a client is by its certificate, which TLS, or a proxy, has verified."""

from __future__ import annotations

import re

from bridge.security.authenticator import Authenticated, AuthenticationFailed, Presented

_PART = re.compile(r"\{(CN|DN|SAN)\}")


class CertificateAuthenticator:
    """The user is what a template makes of the certificate: {CN}, {DN} and {SAN} stand for its parts."""

    def __init__(self, template: str) -> None:
        self._template = template

    def judges(self, presented: Presented) -> bool:
        return presented.certificate is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        certificate = presented.certificate
        assert certificate is not None
        names = certificate.alternative_names
        parts = {"CN": certificate.common_name, "DN": certificate.subject, "SAN": names[0] if names else ""}

        def part(match: re.Match[str]) -> str:
            if not parts[match[1]]:
                raise AuthenticationFailed(f"its certificate, of {certificate.subject!r}, has no {match[1]}")
            return parts[match[1]]

        return Authenticated(_PART.sub(part, self._template))
