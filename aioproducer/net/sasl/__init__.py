"""Logging in to a broker: one file per mechanism, and what they have in common."""

from __future__ import annotations

import asyncio
import random

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.net.sasl.mechanism import Mechanism


def make_mechanism(config: ProducerConfig, loop: asyncio.AbstractEventLoop, rng: random.Random) -> Mechanism:
    """The mechanism that the configs name; each is imported only if it is used."""
    name = config.sasl_mechanism
    if name == "PLAIN":
        from aioproducer.net.sasl.plain import Plain

        return Plain(config)
    if name.startswith("SCRAM"):
        from aioproducer.net.sasl.scram import Scram

        return Scram(config, loop)
    if name == "GSSAPI":
        from aioproducer.net.sasl.gssapi import Gssapi

        return Gssapi(config, loop)
    if name == "AWS_MSK_IAM":
        from aioproducer.net.sasl.aws_msk_iam import AwsMskIam

        return AwsMskIam(config, loop, rng)
    from aioproducer.net.sasl.oauthbearer import OAuthBearer

    return OAuthBearer(config, loop, rng)
