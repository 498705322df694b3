"""Tokens: JWT, signed with keys that the operator has configured. `pyjwt` checks signatures; times are checked here.

Only algorithms with public keys and HMAC are accepted, each with keys of its own kind, never `none`; which one is used
the key says, not the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.security.identities import ANONYMOUS, Identity, IdentityError, checked_name

if TYPE_CHECKING:
    from jwt import PyJWK

TOKEN_MAX_CHARS: Final = 8_192
LEEWAY_S: Final = 5.0
"""Clocks of different hosts differ by a little."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SECRET_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
SECRET_MIN_BYTES: Final = 32
_VARIABLES_MAX_COUNT: Final = 32


class TokenRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token must say besides being signed; empty texts ask for nothing."""

    issuer: str = ""
    audience: str = ""
    name_claim: str = "sub"
    """The claim that is the identity's name."""
    roles_claim: str = "roles"
    """The claim that lists roles."""
    age_max_s: float = 86_400.0
    """A token that ends later than this from now is refused: one that is lost would count for too long."""


class TokenKeys:
    """The keys that tokens may be signed with, from a JWKS file.

    >>> import base64, json
    >>> secret = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    >>> keys = TokenKeys.read(json.dumps({"keys": [{"kty": "oct", "k": secret, "kid": "1", "alg": "HS256"}]}))
    >>> keys.count
    1
    """

    def __init__(self, keys: Mapping[str, PyJWK]) -> None:
        self._keys = dict(keys)

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    @staticmethod
    def read(text: str) -> TokenKeys:
        """Read a JWKS; raises ValueError with what is wrong, and nothing of the keys."""
        jwt = _library()
        try:
            data = msgspec.json.decode(text)
            entries = data["keys"]
            found: dict[str, PyJWK] = {}
            for place, entry in enumerate(entries):
                if entry.get("use", "sig") != "sig":
                    continue
                key = jwt.PyJWK.from_dict(entry)
                if key.algorithm_name not in ALGORITHMS + SECRET_ALGORITHMS:
                    raise ValueError(f"key {place + 1}: the algorithm {key.algorithm_name} is not accepted")
                if entry["kty"] == "oct" and len(key.key) < SECRET_MIN_BYTES:
                    raise ValueError(f"key {place + 1}: a secret has at least {SECRET_MIN_BYTES} bytes")
                if entry["kty"] != "oct" and "d" in entry:
                    raise ValueError(f"key {place + 1} is a private key; whoever checks tokens needs the public one")
                kid = str(entry.get("kid", ""))
                if kid in found:
                    raise ValueError(f"key {place + 1}: every key has a `kid` of its own where there are several")
                found[kid] = key
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            raise ValueError('not a JWKS; expected {"keys": [...]}') from None
        except jwt.PyJWTError as error:
            raise ValueError(f"not a JWKS: {error}") from None
        if not found:
            raise ValueError("a JWKS without keys for signatures")
        return TokenKeys(found)

    def identity(self, token: str, rules: TokenRules, wall_s: float) -> Identity:
        """Whose token this is; raises `IdentityError`."""
        claims = self._claims(token, rules)
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise IdentityError("the token does not say when it ends (exp)")
        if wall_s >= expires_s + LEEWAY_S:
            raise IdentityError("the token has expired")
        if expires_s - wall_s > rules.age_max_s:
            raise IdentityError(f"the token is valid for more than {rules.age_max_s:g} s")
        begins_s = _time(claims, "nbf")
        if begins_s is not None and wall_s + LEEWAY_S < begins_s:
            raise IdentityError("the token is not valid yet")
        name = checked_name(claims.get(rules.name_claim))
        if name == ANONYMOUS:
            raise IdentityError(f"nobody has the name {ANONYMOUS}")
        return Identity(
            name,
            "token",
            roles=_roles(claims.get(rules.roles_claim, [])),
            attributes=_texts(claims),
            expires_s=expires_s + LEEWAY_S,
        )

    def _claims(self, token: str, rules: TokenRules) -> Mapping[str, Any]:
        jwt = _library()
        if len(token) > TOKEN_MAX_CHARS:
            raise IdentityError(f"a token has at most {TOKEN_MAX_CHARS:,} characters")
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.get(str(header.get("kid", "")))
            if key is None and len(self._keys) == 1 and "kid" not in header:
                key = next(iter(self._keys.values()))
            if key is None:
                raise IdentityError("the token is signed with a key that is not known here")
            options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
            claims: Mapping[str, Any] = jwt.decode(token, key=key.key, algorithms=[key.algorithm_name], options=options)
        except jwt.PyJWTError:
            raise IdentityError("the token is not valid: its form or its signature is wrong") from None
        if rules.issuer and claims.get("iss") != rules.issuer:
            raise IdentityError("the token comes from another issuer")
        audience = claims.get("aud", [])
        if rules.audience and rules.audience not in ([audience] if isinstance(audience, str) else audience):
            raise IdentityError("the token is for another audience")
        return claims


def _library() -> Any:
    try:
        import jwt
    except ImportError:
        raise ValueError("tokens need the extra secure: pip install 'trimtab[secure]'") from None
    return jwt


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise IdentityError(f"the token's {claim} is not a time")
    return float(value)


def _roles(value: object) -> tuple[str, ...]:
    roles = value.split() if isinstance(value, str) else value
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise IdentityError("the token's roles are not a list of names")
    return tuple(roles[:_VARIABLES_MAX_COUNT])


def _texts(claims: Mapping[str, Any]) -> dict[str, str]:
    texts = ((name, value) for name, value in claims.items() if isinstance(value, str) and len(value) <= 256)
    return dict(list(texts)[:_VARIABLES_MAX_COUNT])
