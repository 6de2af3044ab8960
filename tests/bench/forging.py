"""Tokens that nobody should believe."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt

from tests.unit.router.auth.bench import Signer


def forge_all(signer: Signer, claims: dict[str, Any]) -> list[str]:
    """Tokens with these claims, which would hold if the issuer's key `k1` had signed them as RS256."""
    stranger, key = Signer("k1"), signer.keys["k1"]
    good = jwt.encode(claims, key, "RS256", {"kid": "k1"})
    return [
        _sign_with_public_key(signer, claims),
        _name_algorithm(good, "none", ""),
        _name_algorithm(good, "None", ""),
        _name_algorithm(good, "RS256", ""),
        jwt.encode(claims, key, "RS512", {"kid": "k1"}),
        jwt.encode(claims, key, "PS256", {"kid": "k1"}),
        jwt.encode(claims, stranger.keys["k1"], "RS256", {"kid": "k1"}),
        jwt.encode(claims, key, "RS256", {"kid": "k2"}),
        jwt.encode(claims, key, "RS256"),
        jwt.encode(claims, key, "RS256", {"kid": "k1", "jwk": json.loads(stranger.key_set())["keys"][0]}) + "x",
    ]


def _sign_with_public_key(signer: Signer, claims: dict[str, Any]) -> str:
    """An HS256 token whose secret is the issuer's public PEM. By hand, because PyJWT refuses to make one."""
    head, body = (_encode(part) for part in ({"alg": "HS256", "kid": "k1"}, claims))
    mac = hmac.digest(signer.public_pem("k1"), head + b"." + body, hashlib.sha256)
    return b".".join((head, body, base64.urlsafe_b64encode(mac).rstrip(b"="))).decode()


def _name_algorithm(token: str, algorithm: str, signature: str) -> str:
    """The same claims under a header that names another algorithm."""
    return f"{_encode({'alg': algorithm, 'kid': 'k1'}).decode()}.{token.split('.')[1]}.{signature}"


def _encode(part: dict[str, Any]) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
