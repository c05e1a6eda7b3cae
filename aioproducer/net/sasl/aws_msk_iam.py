"""AWS_MSK_IAM: login to Amazon's managed Kafka with the IAM credentials of the environment.

With them the package aws-msk-iam-sasl-signer-python signs a token, which the broker accepts through OAUTHBEARER.
"""

from __future__ import annotations

import asyncio
import os
import random
import re

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
from botocore import exceptions as aws_errors

from aioproducer.config.login import jaas_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.net.sasl.mechanism import Exchange
from aioproducer.net.sasl.oauthbearer import OAuthBearerExchange
from aioproducer.net.sasl.token_cache import TokenCache
from aioproducer.net.workers import SharedCall
from aioproducer.oauth_token import OAuthToken

_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}[a-z0-9-]+)\.amazonaws\.com")


class AwsMskIam:
    """Tokens signed for the region of the brokers; ``sasl_jaas_config`` may name a profile or a role."""

    name = "OAUTHBEARER"
    who = "the IAM credentials of the environment"
    remedy = "look at them (aws sts get-caller-identity), and at the policy kafka-cluster:Connect"

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        options = jaas_of(config.sasl_jaas_config, "AWS_MSK_IAM").options
        self._profile = options.get("awsProfileName")
        self._role = options.get("awsRoleArn")
        self._session = options.get("awsRoleSessionName")
        self._region = options.get("awsStsRegion")
        self._signing = SharedCall(loop, self._sign)
        self._host = ""
        self._tokens = TokenCache(config, self._fetch, rng)

    async def begin(self, host: str) -> Exchange:
        """Get a token."""
        self._host = host
        return OAuthBearerExchange(await self._tokens.get())

    def refused(self, exchange: Exchange) -> None:
        """Sign another token for the next login."""
        assert isinstance(exchange, OAuthBearerExchange)
        self._tokens.forget(exchange.token)

    async def _fetch(self) -> OAuthToken:
        region = region_of(self._host) or self._region or os.environ.get("AWS_REGION")
        region = region or os.environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise AuthenticationError(f"the region of {self._host} is not known: set AWS_REGION")
        try:
            value, ends_ms = await self._signing.result(region)
        except (aws_errors.ConnectionError, aws_errors.HTTPClientError) as error:
            message = f"no token could be signed with {self.who}: AWS could not be asked ({type(error).__name__})"
            raise ConnectionLostError(message) from error
        except KafkaError:
            raise
        except aws_errors.NoRegionError as error:  # from the role service's client, which looks only there
            message = f"no token could be signed for the role {self._role}: set AWS_DEFAULT_REGION"
            raise AuthenticationError(message) from error
        except Exception as error:  # botocore has dozens, and credential sources have their own
            raise AuthenticationError(
                f"no token could be signed with {self.who} ({type(error).__name__}): {self.remedy}"
            ) from error
        return OAuthToken(value, int(ends_ms))

    def _sign(self, region: str) -> tuple[str, int]:
        """Blocking: credentials may come from a file, a process or a service."""
        if self._role:
            session = [self._session] if self._session else []
            signed = signer.generate_auth_token_from_role_arn(region, self._role, *session)
        elif self._profile:
            signed = signer.generate_auth_token_from_profile(region, self._profile)
        else:
            signed = signer.generate_auth_token(region)
        value, ends_ms = signed
        return value, ends_ms


def region_of(host: str) -> str | None:
    """The region in the name of an MSK broker."""
    match = _REGION.search(host)
    return match[1] if match else None
