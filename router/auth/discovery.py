"""OpenID Connect discovery: an issuer tells where its keys are.

It is asked before each fetch of the keys, so that keys which moved are found, and nothing has to be remembered. What the document says of
algorithms is not read: those are configured.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from router.auth.fetch import Fetch

_PATH = "/.well-known/openid-configuration"
_MAX_URL_CHARS = 2048


async def fetch_discovered_keys(fetch: Fetch, issuer: str) -> bytes:
    """The key set of an issuer. Raises what `fetch` does, and ValueError when the issuer's document is not one that can be followed."""
    return await fetch(read_keys_url(await fetch(discovery_url(issuer)), issuer))


def discovery_url(issuer: str) -> str:
    """Where an issuer describes itself. Raises ValueError when its URL has a part that is not for issuers."""
    if "?" in issuer or "#" in issuer:
        raise ValueError(f"{issuer}: an issuer has no query or fragment; give its jwks_url")
    return issuer.removesuffix("/") + _PATH


def read_keys_url(document: bytes, issuer: str) -> str:
    """Where the keys are, by the issuer's own document. Raises ValueError."""
    found = json.loads(document)
    if not isinstance(found, dict) or found.get("issuer") != issuer:
        raise ValueError("the discovery document names another issuer")
    url = found.get("jwks_uri")
    if not isinstance(url, str) or len(url) > _MAX_URL_CHARS:
        raise ValueError("the discovery document has no jwks_uri")
    if urlsplit(url).scheme != "https" and urlsplit(issuer).scheme == "https":
        raise ValueError("the discovery document leads away from https")  # no issuer elsewhere sends us to our own loopback
    return url
