"""The admin messages for authentication and authorization: SCRAM credentials and access control lists."""

from __future__ import annotations

from aioproducer.protocol.schema import Int8, Int16, Int32, Message, Request, Struct, field

SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
"""``resource_type`` of access control lists."""
LITERAL, PREFIXED = 3, 4
"""``pattern_type``."""
ALLOW = 3
"""``permission_type``."""
OPERATIONS = {
    name: number
    for number, name in enumerate(
        (
            "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
        ),
        2,
    )
}  # fmt: skip


# --- AlterUserScramCredentials (key 51) -------------------------------------------------------------------------------


class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    """A credential to create or replace."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes = field(hidden=True)
    salted_password: bytes = field(hidden=True)


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str
    error_code: Int16
    error_message: str | None


class AlterUserScramCredentialsResponse(Message):
    """One result per user."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult]


class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    """Change which users can log in with SCRAM."""

    API_KEY = 51
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_FROM = 0

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


# --- DescribeUserScramCredentials (key 50) ----------------------------------------------------------------------------


class ScramUserName(Struct):
    """A requested user."""

    name: str


class ScramCredentialInfo(Struct):
    """One credential of a user."""

    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: list[ScramCredentialInfo]


class DescribeUserScramCredentialsResponse(Message):
    """One result per user."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]


class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    """Ask which users can log in with SCRAM."""

    API_KEY = 50
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_FROM = 0

    users: list[ScramUserName] | None


# --- CreateAcls (key 30) ----------------------------------------------------------------------------------------------


class AclCreation(Struct):
    """One rule."""

    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = field(default=LITERAL)
    principal: str
    host: str = field(default="*")
    operation: Int8
    permission_type: Int8 = field(default=ALLOW)


class AclCreationResult(Struct):
    """The result for one rule."""

    error_code: Int16
    error_message: str | None


class CreateAclsResponse(Message):
    """One result per rule."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult]


class CreateAclsRequest(Request[CreateAclsResponse]):
    """Create rules."""

    API_KEY = 30
    MIN_VERSION = 1
    MAX_VERSION = 3
    FLEXIBLE_FROM = 2

    creations: list[AclCreation]


# --- DeleteAcls (key 31) ----------------------------------------------------------------------------------------------


class DeleteAclsFilter(Struct):
    """The rules to remove; here always one."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = field(default=LITERAL)
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8 = field(default=ALLOW)


class DeleteAclsMatchingAcl(Struct):
    """A removed rule."""

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DeleteAclsFilterResult(Struct):
    """The result of one filter."""

    error_code: Int16
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Message):
    """One result per filter."""

    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsFilterResult]


class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """Remove rules."""

    API_KEY = 31
    MIN_VERSION = 1
    MAX_VERSION = 3
    FLEXIBLE_FROM = 2

    filters: list[DeleteAclsFilter]


# --- DescribeAcls (key 29) --------------------------------------------------------------------------------------------


class AclDescription(Struct):
    """One rule of a resource."""

    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Struct):
    """The rules of one resource."""

    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    acls: list[AclDescription]


class DescribeAclsResponse(Message):
    """The requested rules."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: str | None
    resources: list[DescribeAclsResource]


class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """Request rules; the fields are those of DeleteAcls."""

    API_KEY = 29
    MIN_VERSION = 1
    MAX_VERSION = 3
    FLEXIBLE_FROM = 2

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = field(default=LITERAL)
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8 = field(default=ALLOW)
