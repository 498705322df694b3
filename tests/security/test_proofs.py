"""Certificates, tokens and passwords: who is believed, and who is not."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from trimtab.security.identities import IdentityError, from_certificate
from trimtab.security.passwords import PasswordHash, read_passwords
from trimtab.security.tokens import LEEWAY_S, TokenKeys, TokenRules

NOW_S = 1_800_000_000.0
SECRET = b"0123456789abcdef0123456789abcdef"
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS = TokenKeys.read(
    json.dumps(
        {
            "keys": [
                {**json.loads(jwt.algorithms.HMACAlgorithm.to_jwk(SECRET)), "kid": "mac", "alg": "HS256"},
                {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key())), "kid": "ec"},
                {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key())), "kid": "rsa", "alg": "RS256"},
            ]
        }
    )
)
RULES = TokenRules(issuer="city", audience="trimtab")


def token(kid: str = "ec", key: Any = EC_KEY, algorithm: str = "ES256", **claims: Any) -> str:
    says = {"sub": "ann", "exp": NOW_S + 600, "iss": "city", "aud": ["trimtab"], "district": "north", **claims}
    return jwt.encode({k: v for k, v in says.items() if v is not None}, key, algorithm, headers={"kid": kid})


@pytest.mark.parametrize(
    ("kid", "key", "algorithm"), [("ec", EC_KEY, "ES256"), ("rsa", RSA_KEY, "RS256"), ("mac", SECRET, "HS256")]
)
def test_a_token_that_a_configured_key_has_signed_is_believed(kid: str, key: Any, algorithm: str) -> None:
    identity = KEYS.identity(token(kid, key, algorithm, roles=["crew"]), RULES, NOW_S)
    assert (identity.name, identity.proof, identity.roles) == ("ann", "token", ("crew",))
    assert identity.attributes["district"] == "north"
    assert not identity.is_over(NOW_S + 600)
    assert identity.is_over(NOW_S + 600 + LEEWAY_S)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda: token(exp=NOW_S - 60), "has expired"),
        (lambda: token(exp=None), "does not say when it ends"),
        (lambda: token(exp=NOW_S + 10**7), "valid for more than"),
        (lambda: token(exp=float("1e300")), "exp is not a time"),
        (lambda: token(nbf=NOW_S + 60), "not valid yet"),
        (lambda: token(iss="elsewhere"), "another issuer"),
        (lambda: token(aud="elsewhere"), "another audience"),
        (lambda: token(sub=None), "cannot be the name"),
        (lambda: token(sub="ann/phone"), "cannot be the name"),
        (lambda: token(sub="anonymous"), "nobody has the name"),
        (lambda: token(roles=[1]), "roles are not a list"),
        (lambda: token("other"), "a key that is not known"),
        (lambda: token("ec", ec.generate_private_key(ec.SECP256R1())), "signature is wrong"),
        (lambda: token("rsa", SECRET, "HS256"), "signature is wrong"),
        (lambda: jwt.encode({"sub": "ann", "exp": NOW_S + 600}, "", "none", headers={"kid": "ec"}), "is wrong"),
        (lambda: "x.y.z", "is wrong"),
        (lambda: "x" * 10_000, "at most"),
    ],
)
def test_a_token_that_is_wrong_is_not_believed(bad: Any, reason: str) -> None:
    with pytest.raises(IdentityError, match=reason):
        KEYS.identity(bad(), RULES, NOW_S)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not a JWKS"),
        ('{"keys": []}', "without keys"),
        ('{"keys": [{"kty": "oct", "k": "c2hvcnQ", "alg": "HS256"}]}', "a secret has at least 32 bytes"),
        (json.dumps({"keys": [json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY))]}), "is a private key"),
    ],
)
def test_a_jwks_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenKeys.read(text)


def test_a_password_fits_its_hash_and_no_other() -> None:
    found = read_passwords(f"# people\nann:{PasswordHash.of('correct horse', b'0123456789abcdef')}\n")
    assert found["ann"].fits("correct horse")
    assert not found["ann"].fits("correct hors")
    assert not found["ann"].fits("")


@pytest.mark.parametrize("line", ["ann:plain", "ann", "ann:scrypt$3$8$1$AAAA$AAAA", "a b:scrypt$16384$8$1$$", ":x"])
def test_a_line_that_is_no_hash_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(ValueError, match="passwords:1: "):
        read_passwords(line)


def test_a_certificate_names_one_identity() -> None:
    assert from_certificate({"subject": ((("commonName", "B1"),),)}, frozenset({"B1"})).is_broker
    assert not from_certificate({"subject": ((("commonName", "ann"),),)}, frozenset({"B1"})).is_broker
    for subject in ((), ((("commonName", "a"),), (("commonName", "b"),)), ((("commonName", "a/b"),),)):
        with pytest.raises(IdentityError):
            from_certificate({"subject": subject}, frozenset())
