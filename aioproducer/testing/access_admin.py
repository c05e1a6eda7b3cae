"""AccessAdmin: users, their passwords and permissions, on a cluster reached by its addresses."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable

from aioproducer.errors import broker_error
from aioproducer.testing import access_messages as messages
from aioproducer.testing.admin import TopicAdmin
from aioproducer.testing.waiting import wait_until

MIN_ITERATIONS = 4096
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_iterations = itertools.count(MIN_ITERATIONS)

Rule = tuple[int, str, int, str, int]
"""Resource type, resource name, pattern type, principal, operation."""


class AccessAdmin(TopicAdmin):
    """`TopicAdmin`, plus users and their permissions. All brokers see a change when its call returns."""

    def set_scram_user(self, name: str, password: str) -> None:
        """Let a user log in with SCRAM-SHA-256 and SCRAM-SHA-512, or change the password. Kafka 3.5 or newer."""
        # A broker reveals only a credential's number of iterations, so each credential gets its own number.
        iterations = next(_iterations)
        for mechanism, number in messages.SCRAM_MECHANISMS.items():  # a request may name a user once
            salt = os.urandom(16)
            salted = hashlib.pbkdf2_hmac(_DIGESTS[mechanism], password.encode(), salt, iterations)
            credential = messages.ScramCredentialUpsertion(
                name=name, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
            )
            self._alter_scram(messages.AlterUserScramCredentialsRequest(upsertions=[credential]))

        def missing() -> str:
            behind = [broker for broker in self._live() if self._scram_iterations(broker, name) != {iterations}]
            return f"the brokers {behind} do not know the new password" if behind else ""

        wait_until(missing, self.change_timeout_s, f"setting the password of user {name}")

    def remove_scram_user(self, name: str) -> None:
        """Remove a user's SCRAM credentials; open connections stay open."""
        for number in messages.SCRAM_MECHANISMS.values():
            credential = messages.ScramCredentialDeletion(name=name, mechanism=number)
            self._alter_scram(messages.AlterUserScramCredentialsRequest(deletions=[credential]))

        def left() -> str:
            behind = [broker for broker in self._live() if self._scram_iterations(broker, name)]
            return f"the brokers {behind} still know the user" if behind else ""

        wait_until(left, self.change_timeout_s, f"removing user {name}")

    def _alter_scram(self, request: messages.AlterUserScramCredentialsRequest) -> None:
        for result in self.ask(request).results:
            _raise_for(result.error_code, result.error_message, f"user {result.user}")

    def _scram_iterations(self, broker: int, name: str) -> set[int]:
        request = messages.DescribeUserScramCredentialsRequest(users=[messages.ScramUserName(name=name)])
        answer = self.ask(request, broker=broker)
        return {info.iterations for result in answer.results for info in result.credential_infos}

    def allow(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefix: bool = False,
    ) -> None:
        """Allow operations on resources; needs a cluster started with ``acls=True``.

        Args:
            user: its name, without ``User:``.
            operations: such as ``"WRITE"``, ``"DESCRIBE"``, ``"IDEMPOTENT_WRITE"``, ``"ALL"``.
            topic, group, transactional_id: a name, or ``"*"``.
            prefix: the names are prefixes.
        """
        rules = list(_rules(user, operations, topic, group, transactional_id, cluster, prefix))
        creations = [
            messages.AclCreation(
                resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=who, operation=what
            )
            for kind, name, pattern, who, what in rules
        ]
        for result in self.ask(messages.CreateAclsRequest(creations=creations)).results:
            _raise_for(result.error_code, result.error_message, f"rules of user {user}")
        self._wait_for_rules(rules, there=True)

    def disallow(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefix: bool = False,
    ) -> None:
        """Revoke what ``allow`` granted, with the same arguments."""
        rules = list(_rules(user, operations, topic, group, transactional_id, cluster, prefix))
        filters = [
            messages.DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=pattern,
                principal_filter=who,
                host_filter="*",
                operation=what,
            )
            for kind, name, pattern, who, what in rules
        ]
        for result in self.ask(messages.DeleteAclsRequest(filters=filters)).filter_results:
            _raise_for(result.error_code, result.error_message, f"rules of user {user}")
        self._wait_for_rules(rules, there=False)

    def _wait_for_rules(self, rules: list[Rule], *, there: bool) -> None:
        def behind() -> str:
            wrong = [
                f"broker {broker} {'lacks' if there else 'still has'} {rule}"
                for broker in self._live()
                for rule in rules
                if self._has_rule(broker, rule) != there
            ]
            return "; ".join(wrong)

        wait_until(behind, self.change_timeout_s, "changing access rules")

    def _has_rule(self, broker: int, rule: Rule) -> bool:
        kind, name, pattern, who, what = rule
        request = messages.DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=who,
            host_filter="*",
            operation=what,
        )
        answer = self.ask(request, broker=broker)
        _raise_for(answer.error_code, answer.error_message, "access rules")
        return any(resource.acls for resource in answer.resources)


def _rules(
    user: str,
    operations: Iterable[str],
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    prefix: bool,
) -> Iterable[Rule]:
    resources = [
        (messages.TOPIC, topic),
        (messages.GROUP, group),
        (messages.TRANSACTIONAL_ID, transactional_id),
        (messages.CLUSTER, "kafka-cluster" if cluster else None),
    ]
    for operation in operations:
        if operation not in messages.OPERATIONS:
            raise ValueError(f"{operation!r} is not an operation; these are: {', '.join(messages.OPERATIONS)}")
        for kind, name in resources:
            if name is not None:
                pattern = messages.PREFIXED if prefix and kind != messages.CLUSTER else messages.LITERAL
                yield kind, name, pattern, f"User:{user}", messages.OPERATIONS[operation]


def _raise_for(error_code: int, message: str | None, what: str) -> None:
    if error_code:
        raise broker_error(error_code, f"{what}: {message}" if message else what)
