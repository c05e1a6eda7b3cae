"""Assertions: their claims and signatures, and keys and templates that can't be used."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError
from aioproducer.net.sasl.assertion import signed_assertion
from aioproducer.net.sasl.jwt_file import read_jwt
from tests.unit.shown import shown_by_tools
from tests.web_tokens import claims_of, pem_of, private_key, verified

ASSERTION = "sasl_oauthbearer_assertion"


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    key = private_key("RS256")
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def signed(path: Path, **more: Any) -> str:
    """An assertion signed with the key in this file."""
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://id.example/token",
            f"{ASSERTION}_private_key_file": str(path),
            **{f"{ASSERTION}_{name}": value for name, value in more.items()},
        }
    )
    return signed_assertion(config)


def refused(path: Path, **more: Any) -> str:
    """The error that prevents an assertion."""
    with pytest.raises(AuthenticationError) as caught:
        signed(path, **more)
    assert "passphrase-7" not in "".join([str(caught.value), *shown_by_tools(caught.value)])
    return str(caught.value)


@pytest.mark.parametrize("passphrase", [None, "passphrase-7"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_what_it_says(tmp_path: Path, algorithm: str, passphrase: str | None) -> None:
    """Another library verifies it with the public key; the claims come from the configs and the clock."""
    key = private_key(algorithm)
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(key, passphrase))
    before_s = int(time.time())
    token = signed(
        path,
        algorithm=algorithm.lower(),
        private_key_passphrase=passphrase,
        claim_aud="https://id.example",
        claim_iss="orders",
        claim_sub="alice",
        claim_exp_seconds=60,
        claim_nbf_seconds=5,
    )
    assert verified(token, key.public_key())
    assert not verified(token, private_key(algorithm).public_key())
    header, claims = claims_of(token)
    assert header == {"alg": algorithm, "typ": "JWT"}
    assert before_s <= claims["iat"] <= time.time()
    assert (claims.pop("exp"), claims.pop("nbf")) == (claims["iat"] + 60, claims.pop("iat") - 5)
    assert claims == {"aud": "https://id.example", "iss": "orders", "sub": "alice"}


def test_a_number_of_its_own(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(rsa_key))
    numbers = {claims_of(signed(path, claim_jti_include=True))[1]["jti"] for _ in range(3)}
    assert len(numbers) == 3


def test_a_template_goes_before_the_claims_and_not_before_times(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    path, template = tmp_path / "key.pem", tmp_path / "template.json"
    path.write_bytes(pem_of(rsa_key))
    template.write_text(
        json.dumps({"header": {"kid": "k", "alg": "none"}, "payload": {"sub": "t", "exp": 1, "a": [1]}})
    )
    token = signed(path, template_file=str(template), claim_iss="orders", claim_sub="alice")
    header, claims = claims_of(token)
    assert header == {"kid": "k", "alg": "RS256", "typ": "JWT"}
    assert claims["exp"] == claims["iat"] + 300
    assert (claims["iss"], claims["sub"], claims["a"]) == ("orders", "t", [1])
    assert verified(token, rsa_key.public_key())


@pytest.mark.parametrize("text", ["", "[]", "{", '{"header": 1}', '{"payload": [1]}', "[" * 100_000])
def test_no_template(tmp_path: Path, rsa_key: rsa.RSAPrivateKey, text: str) -> None:
    path, template = tmp_path / "key.pem", tmp_path / "template.json"
    path.write_bytes(pem_of(rsa_key))
    template.write_text(text)
    told = refused(path, template_file=str(template))
    assert told == f"{ASSERTION}_template_file: {template} is not a JSON object with objects header and payload"


@pytest.mark.parametrize("parts", [{"header": {"kid": 5}}, {"payload": {"iss": 5}}])
def test_a_template_that_no_assertion_can_have(tmp_path: Path, rsa_key: rsa.RSAPrivateKey, parts: Any) -> None:
    path, template = tmp_path / "key.pem", tmp_path / "template.json"
    path.write_bytes(pem_of(rsa_key))
    template.write_text(json.dumps(parts))
    assert f"{ASSERTION}_template_file: {template} can't be signed: " in refused(path, template_file=str(template))


def test_keys_that_cannot_be_used(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    """Each message names the config, and what to do."""
    path = tmp_path / "key.pem"
    assert refused(path).endswith("can't be read: No such file or directory")
    path.write_text("no key")
    assert "holds no private key in PEM form" in refused(path)
    path.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    assert refused(path).endswith("holds a key that can't be read: it is damaged")
    path.write_bytes(b"\xff\xfe\x00")
    assert refused(path).endswith("is not text")
    path.write_bytes(pem_of(rsa_key, "another"))
    assert refused(path).endswith(f"holds an encrypted key: set {ASSERTION}_private_key_passphrase")
    assert "passphrase does not open it" in refused(path, private_key_passphrase="passphrase-7")
    path.write_bytes(pem_of(rsa_key))
    assert "holds no key for sasl_oauthbearer_assertion_algorithm=ES256" in refused(path, algorithm="ES256")
    path.write_bytes(ec.generate_private_key(ec.SECP384R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    ))  # fmt: skip
    assert "ES256 one of the curve P-256" in refused(path, algorithm="ES256")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_key_as_ssh_keygen_writes_it(tmp_path: Path, algorithm: str) -> None:
    """The key is valid; the message has the command that converts it to PEM."""
    path = tmp_path / "key.pem"
    path.write_bytes(private_key(algorithm).private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    assert refused(path, algorithm=algorithm).endswith(
        f"holds a key in OpenSSH format: ssh-keygen -p -m PKCS8 -f {path} makes it PEM"
    )


def test_kafkas_older_form_of_keys(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    """PKCS 1, and PEM in one line, as in .properties files."""
    path = tmp_path / "key.pem"
    text = rsa_key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    path.write_text(" ".join(text.split("\n")))
    assert verified(signed(path), rsa_key.public_key())


def test_a_passphrase_for_an_open_key_is_without_effect(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(rsa_key))
    assert verified(signed(path, private_key_passphrase="passphrase-7"), rsa_key.public_key())


@pytest.mark.parametrize("text", ["", "opaque", "a.b", "a..c", "a.b.c.d", "a b.c.d", "é.b.c"])
def test_files_without_a_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(AuthenticationError, match=r"^where: .* holds no JSON web token \(header") as caught:
        read_jwt(str(path), "where")
    assert repr(text) not in shown_by_tools(caught.value)


def test_the_token_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" e30.e30.c2ln\n")
    assert read_jwt(str(path), "where") == "e30.e30.c2ln"
