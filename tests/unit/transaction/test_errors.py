"""What each error means for a transaction, for each request, as in Kafka's own client."""

from __future__ import annotations

import pytest

from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    ProtocolError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    broker_error,
)
from aioproducer.protocol.schema import UnwritableError
from aioproducer.transaction.errors import Reaction, as_told, reaction, reaction_to_code, worst

FIND, INIT, PARTITIONS, OFFSETS, END, COMMIT = 10, 22, 24, 25, 26, 28
ALL = (FIND, INIT, PARTITIONS, OFFSETS, END, COMMIT)
R = Reaction

# (code, what it means, for which requests); everything else is fatal.
TABLE = [
    (2, R.RETRY, ALL),
    (7, R.RETRY, (FIND, INIT, PARTITIONS, OFFSETS, END)),
    (7, R.FIND, (COMMIT,)),
    (13, R.FIND, ALL),
    (14, R.RETRY, ALL),
    (15, R.RETRY, (FIND,)),
    (15, R.FIND, (INIT, PARTITIONS, OFFSETS, END, COMMIT)),
    (16, R.FIND, ALL),
    (51, R.RETRY, ALL),
    (89, R.RETRY, ALL),
    (47, R.FENCED, ALL),
    (90, R.FENCED, ALL),
    (120, R.ABORTABLE, ALL),
    (3, R.RETRY, (PARTITIONS, COMMIT)),
    (3, R.FATAL, (INIT, END)),
    (29, R.ABORTABLE, (PARTITIONS, COMMIT)),
    (30, R.ABORTABLE, (FIND, OFFSETS, COMMIT)),
    (22, R.ABORTABLE, (COMMIT,)),
    (25, R.ABORTABLE, (COMMIT,)),
    (82, R.ABORTABLE, (COMMIT,)),
    (55, R.ABORTABLE, (PARTITIONS,)),
    (59, R.ABORTABLE, (PARTITIONS, OFFSETS, END)),
    (-1, R.ABORTABLE, (PARTITIONS,)),
    (-1, R.RETRY_SOON, (END,)),
    (-1, R.FATAL, (FIND, INIT, OFFSETS, COMMIT)),
    (17, R.ABORTABLE, (PARTITIONS,)),
    (31, R.FATAL, ALL),
    (35, R.FATAL, ALL),
    (42, R.FATAL, ALL),
    (48, R.FATAL, ALL),
    (49, R.FATAL, ALL),
    (50, R.FATAL, (INIT,)),
    (53, R.FATAL, ALL),
]


@pytest.mark.parametrize(
    ("code", "expected", "api_key"), [(code, what, api) for code, what, apis in TABLE for api in apis]
)
def test_the_reaction_depends_on_the_request_that_an_error_answers(code: int, expected: Reaction, api_key: int) -> None:
    """By the request that the error answers."""
    assert reaction_to_code(api_key, code) is expected
    assert reaction(api_key, broker_error(code)) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionLostError("gone"), R.FIND),
        (ProtocolError("nonsense"), R.FIND),
        (UnwritableError("too long"), R.ABORTABLE),
        (AuthenticationError("wrong password"), R.FATAL),
        (SaslAuthenticationFailedError("wrong password"), R.FATAL),
        (IllegalSaslStateError("no login here"), R.FATAL),
        (UnsupportedSaslMechanismError("not this one"), R.FATAL),
        (UnsupportedVersionError("old"), R.FATAL),
        (KafkaError("a bug"), R.FATAL),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_this_side(error: KafkaError, expected: Reaction) -> None:
    """A lost connection may be retried at another broker; a request that can't be written will not succeed later."""
    assert reaction(END, error) is expected


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0, 0], 0), ([0, 3, 0], 3), ([55, 29, 55], 29), ([55, 55], 55), ([3, 16], 16), ([29, 53], 53)],
)
def test_worst_of_several(codes: list[int], expected: int) -> None:
    """The gravest error counts; "not attempted" counts only if there is no other."""
    assert worst(PARTITIONS, codes) == expected


def test_as_told() -> None:
    """Two codes for fencing become one class; others keep theirs and get their flags."""
    old = InvalidProducerEpochError("old epoch")
    fenced = as_told(Reaction.FENCED, old, "id-1")
    assert isinstance(fenced, ProducerFencedError)
    assert fenced.fatal
    assert fenced.application_recoverable
    assert fenced.__cause__ is old
    assert "id-1" in str(fenced)
    group = as_told(Reaction.ABORTABLE, GroupAuthorizationFailedError("no"), "id-1")
    assert (type(group), group.abortable, group.fatal) == (GroupAuthorizationFailedError, True, False)
    gone = as_told(Reaction.FATAL, KafkaError("bug"), "id-1")
    assert (gone.abortable, gone.fatal) == (False, True)
