"""SCRAM: the bytes of Kafka's own client, and what a wrong or hostile broker can send."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import scramp

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, SaslAuthenticationFailedError
from aioproducer.net.sasl.scram import MAX_ITERATIONS, Scram, ScramExchange

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "vectors.json").read_text())
VECTORS = GOLDEN["scram"]
NONCE = "rOprNGfwEbeRWgbNEkqO"


def exchange(vector: dict[str, Any], **more: Any) -> ScramExchange:
    loop = asyncio.get_running_loop()
    return ScramExchange(vector["mechanism"], vector["user"], vector["password"], loop, nonce=NONCE, **more)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['mechanism']}-{vector['user']}")
async def test_the_messages_are_those_of_kafka(vector: dict[str, Any]) -> None:
    """Names and passwords are UTF-8 without SASLprep; commas and equals signs are escaped only in names."""
    login = exchange(vector)
    assert await login.respond(None) == vector["client_first"].encode()
    assert await login.respond(vector["server_first"].encode()) == vector["client_final"].encode()
    assert await login.respond(vector["server_final"].encode()) is None


async def test_the_key_is_derived_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may ask for a million iterations, half a second in which the loop could do nothing else."""
    threads: list[int] = []
    derive = scramp.ScramClient.get_client_final

    def noted(client: scramp.ScramClient) -> str:
        threads.append(threading.get_ident())
        proof: str = derive(client)
        return proof

    monkeypatch.setattr(scramp.ScramClient, "get_client_final", noted)
    login = exchange(VECTORS[0])
    await login.respond(None)
    assert await login.respond(VECTORS[0]["server_first"].encode()) == VECTORS[0]["client_final"].encode()
    (thread,) = threads
    assert thread != threading.get_ident()


async def test_a_password_that_saslprep_would_change_is_not_changed() -> None:
    """SASLprep would change this one; a client that applies it would log in with a different password."""
    proofs = []
    for password in ("Ⅸ\u00a0", "IX "):
        login = exchange({**VECTORS[0], "password": password})
        await login.respond(None)
        proofs.append(await login.respond(VECTORS[0]["server_first"].encode()))
    assert proofs[0] != proofs[1]


async def test_a_delegation_token_says_so() -> None:
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_jaas_config": "x.ScramLoginModule required username=tokenid password=hmac tokenauth=true;",
        }
    )
    first = await (await Scram(config, asyncio.get_running_loop()).begin("host")).respond(None)
    assert first is not None
    expected = GOLDEN["scram_delegation_token_client_first"].split("r=")
    assert first.decode().startswith(expected[0])
    assert first.decode().endswith(",tokenauth=true")
    assert "hmac" not in repr(config)


async def test_extensions_are_signed_too() -> None:
    """Both sides sign their messages, by RFC 5802: a client that leaves out the extensions is refused."""
    login = exchange(VECTORS[0], extensions=",tokenauth=true")
    first = await login.respond(None)
    assert first is not None
    server_first = VECTORS[0]["server_first"]
    nonce, salt, iterations = (part[2:] for part in server_first.split(","))
    without_proof = f"c=biws,r={nonce}"
    said = f"{first.decode().removeprefix('n,,')},{server_first},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", VECTORS[0]["password"].encode(), base64.b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    final = await login.respond(server_first.encode())
    assert final == f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    answer = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256")
    assert await login.respond(b"v=" + base64.b64encode(answer)) is None


@pytest.mark.parametrize(
    "server_first",
    [
        VECTORS[0]["server_first"].replace(NONCE, "another"),
        VECTORS[0]["server_first"].replace("i=4096", "i=1"),
        VECTORS[0]["server_first"].replace("i=4096", f"i={MAX_ITERATIONS + 1}"),
        VECTORS[0]["server_first"].replace("i=4096", "i=" + "9" * 5_000),
        VECTORS[0]["server_first"].split(",")[0],
        "e=other-error",
        "",
        "\0",
    ],
)
async def test_a_broker_that_breaks_the_rules_gets_no_proof(server_first: str) -> None:
    login = exchange(VECTORS[0])
    await login.respond(None)
    with pytest.raises(AuthenticationError) as caught:
        await login.respond(server_first.encode())
    assert VECTORS[0]["password"] not in str(caught.value)


async def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    login = exchange(VECTORS[0])
    await login.respond(None)
    await login.respond(VECTORS[0]["server_first"].encode())
    with pytest.raises(AuthenticationError, match="signature doesn't match"):
        await login.respond(VECTORS[1]["server_final"].encode())


@pytest.mark.parametrize("step", [1, 2])
async def test_what_a_broker_says_against_a_login_is_told(step: int) -> None:
    """Kafka's own says it in SaslAuthenticate, but RFC 5802 has a message for it."""
    login = exchange(VECTORS[0])
    await login.respond(None)
    if step == 2:
        await login.respond(VECTORS[0]["server_first"].encode())
    with pytest.raises(SaslAuthenticationFailedError, match=r"the broker answered invalid-proof$"):
        await login.respond(b"e=invalid-proof")


@pytest.mark.parametrize("seed", range(40))
async def test_mutated_messages_end_in_one_kind_of_error(seed: int) -> None:
    """Mutated bytes lead to a next message, the end, or an AuthenticationError, never to anything else."""
    rng = random.Random(seed)
    vector = rng.choice(VECTORS[:2])
    for _ in range(25):
        login = exchange(vector)
        await login.respond(None)
        first, final = (_mutated(vector[name].encode(), rng) for name in ("server_first", "server_final"))
        try:
            await login.respond(first if rng.random() < 0.7 else vector["server_first"].encode())
            done = await login.respond(final)
        except AuthenticationError:
            continue
        assert done is None
        assert final == vector["server_final"].encode() or b"v=" in final


def _mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case 1:
                del out[at : at + rng.randint(1, 20)]
            case 2:
                out[at : at + 1] = bytes([rng.choice(b",=veirsm\0\xff0123")])
            case 3:
                out = out[:at]
            case 4:
                out += out[at:]
    # Many iterations would take long, so in half of the messages the number is replaced.
    return bytes(out).replace(b"i=", b"i=4096,x=") if rng.random() < 0.5 else bytes(out[:300])
