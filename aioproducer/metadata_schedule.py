"""Decides which topics' metadata to ask for, and when. Pure: time comes in as milliseconds.

There are two kinds of requests. A full one covers all topics in use; it is due when requested or when the last one is
older than ``metadata_max_age_ms``, but never sooner than a back-off after the last. A partial one covers single topics
that need an answer: at once for a new topic, at growing intervals for one whose last answer was an error. Each topic
has its own back-off, so that a broken topic delays no other. Requests that got no answer at all delay both kinds.

A broker may create the missing topics of a request, if the request allows it. A request does so only if all its topics
are missing and needed by the program: else a topic that was deleted would come back, empty, with the next refresh. So a
full request leaves out wanted topics that are to be created, unless there are no others; a partial one asks for them.

Life of a topic::

    use() ──> wanted ──begin()──> asked ──succeeded()──> known ──expires──> (forgotten by begin())
                ^                   │        │
                │                   │        └─ with an error: wanted again after its back-off
                └────── failed() ───┘           (errors that only the user can repair: when want() is called)

Source: Kafka's Metadata and ProducerMetadata; KIP-580 (back-off), KIP-1102 (rebootstrap).
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass

from aioproducer.backoff import ExponentialBackoff
from aioproducer.config.producer_config import ProducerConfig

LEAST_DELAY_MS = 10
"""Prevents a busy loop of requests even with ``retry_backoff_ms=0``."""

COALESCE_MS = 50
"""Topics due within this time join a request that is due now."""


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """A request to make: for all topics in use (``full``), or some of them."""

    topics: tuple[str, ...]
    full: bool
    by_age: bool = False
    """Nobody requested it; the last full one is just old."""
    creates: bool = False
    """The program needs these topics, which are missing as far as is known: the broker may create them."""


@dataclass(slots=True)
class _TopicUse:
    expires_ms: int
    next_ms: int = 0
    """The earliest time of the next request for it, while it is wanted."""
    failures: int = 0
    """Consecutive answers that were an error or did not help."""
    needed: bool = True
    """The program asked for it, and no answer since has had it."""


class MetadataSchedule:
    """The topics in use and the requests they need."""

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self._max_age_ms = config.metadata_max_age_ms
        self._max_idle_ms = config.metadata_max_idle_ms
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._rng = rng
        self._topics: OrderedDict[str, _TopicUse] = OrderedDict()
        self._wanted: dict[str, None] = {}
        self._asked: tuple[str, ...] = ()
        self._full_wanted = False
        self._full_not_before_ms = 0
        self.full_at_ms = 0
        self._equivalent_answers = 0
        self._failed_attempts = 0
        self._not_before_ms = 0
        self._pending_since_ms: int | None = None

    @property
    def topics(self) -> Collection[str]:
        """The topics in use, that used last at the end."""
        return self._topics.keys()

    # --- requests from callers ----------------------------------------------------------------------------------------

    def started(self, now_ms: int) -> None:
        """The cluster has just been bootstrapped: its brokers are fresh."""
        self.full_at_ms = now_ms

    def use(self, topic: str, now_ms: int) -> bool:
        """Note that a topic is used; True if it was not in use before and so is wanted now."""
        state = self._topics.get(topic)
        if state is not None:
            state.expires_ms = now_ms + self._max_idle_ms
            self._topics.move_to_end(topic)
            return False
        self._topics[topic] = _TopicUse(now_ms + self._max_idle_ms)
        self._wanted[topic] = None
        return True

    def want(self, topic: str, now_ms: int) -> bool:
        """Ask for a topic that is needed, no sooner than its back-off allows; True unless it is asked for already."""
        if self.use(topic, now_ms):
            return True
        self.need(topic)
        if topic in self._wanted or topic in self._asked:
            return False
        self._wanted[topic] = None
        return True

    def need(self, topic: str) -> None:
        """Note that the program asks for a topic in use, although it may be missing."""
        self._topics[topic].needed = True

    def is_needed(self, topic: str) -> bool:
        """Whether the program has asked for a topic since the last answer that had it."""
        return self._topics[topic].needed

    def want_all(self) -> None:
        """Ask for everything: a leader is unknown or wrong, or a connection was lost."""
        self._full_wanted = True

    def answered_lately(self, topic: str, now_ms: int) -> bool:
        """Whether the last answer about a topic is so fresh that the back-off forbids asking again."""
        state = self._topics.get(topic)
        return state is not None and now_ms < state.next_ms

    def failures(self, topic: str) -> int:
        """The number of consecutive answers about a topic that were an error, or did not help."""
        state = self._topics.get(topic)
        return state.failures if state is not None else 0

    # --- decisions ----------------------------------------------------------------------------------------------------

    def due_ms(self) -> int:
        """When the next request is due."""
        times = [self._topics[topic].next_ms for topic in self._wanted]
        return max(self._not_before_ms, min([self._full_due_ms(), *times]))

    def begin(
        self,
        now_ms: int,
        still_used: Callable[[str], bool],
        creates: Callable[[str], bool],
    ) -> MetadataUpdate:
        """Take the request that is due. ``succeeded`` or ``failed`` must end it before the next one begins.

        Args:
            still_used: asked about each topic that would be forgotten now.
            creates: asked about each wanted topic: whether it seems to be missing and has to be there.
        """
        self._forget_expired(now_ms, still_used)
        if self._pending_since_ms is None:
            self._pending_since_ms = now_ms
        if self._full_due_ms() <= now_ms:
            update = self._full(creates)
            self._full_wanted = False
        else:
            update = self._partial(now_ms, creates)
        self._asked = update.topics
        for topic in update.topics:
            self._wanted.pop(topic, None)
        return update

    def _full(self, creates: Callable[[str], bool]) -> MetadataUpdate:
        """All topics, except those to be created, which a partial request covers; or just those, if all are."""
        topics = tuple(topic for topic in self._topics if topic not in self._wanted or not creates(topic))
        creating = bool(self._topics) and not topics
        return MetadataUpdate(
            tuple(self._topics) if creating else topics, full=True, by_age=not self._full_wanted, creates=creating
        )

    def _partial(self, now_ms: int, creates: Callable[[str], bool]) -> MetadataUpdate:
        """The wanted topics that are due: either those to be created or the others, depending on the first."""
        ready = [topic for topic in self._wanted if self._topics[topic].next_ms <= now_ms + COALESCE_MS]
        kinds = [creates(topic) for topic in ready]
        creating = bool(kinds) and kinds[0]
        return MetadataUpdate(
            tuple(topic for topic, kind in zip(ready, kinds, strict=True) if kind == creating),
            full=False,
            creates=creating,
        )

    def succeeded(
        self,
        update: MetadataUpdate,
        now_ms: int,
        *,
        failing: Container[str],
        again: Container[str],
        missing: Container[str],
        news: bool,
    ) -> None:
        """An answer came.

        Args:
            failing: topics whose answer was an error, or did not help its waiters.
            again: those of them that may recover by themselves and are wanted again.
            missing: those of them that the answer did not have.
            news: whether it named newer leaders; full answers without news space out the next ones.
        """
        self._asked = ()
        self._failed_attempts = 0
        self._not_before_ms = 0
        self._pending_since_ms = None
        good_ms = now_ms + self._delay_ms(0)
        for topic in update.topics:
            state = self._topics[topic]
            state.failures = state.failures + 1 if topic in failing else 0
            state.next_ms = now_ms + self._delay_ms(state.failures) if state.failures else good_ms
            state.needed = state.needed and topic in missing
            if topic in again:
                self._wanted[topic] = None
        if update.full:
            self._equivalent_answers = 0 if news or update.by_age else self._equivalent_answers + 1
            self.full_at_ms = now_ms
            self._full_not_before_ms = now_ms + self._delay_ms(self._equivalent_answers)

    def failed(self, update: MetadataUpdate, now_ms: int) -> None:
        """No answer came, or a useless one."""
        self._asked = ()
        self._failed_attempts += 1
        self._not_before_ms = now_ms + self._delay_ms(self._failed_attempts)
        self._full_wanted = self._full_wanted or update.full
        self._wanted.update((topic, None) for topic in update.topics)

    def pending_too_long(self, now_ms: int) -> bool:
        """Whether useful answers have been missing for so long that the known brokers must be wrong."""
        return self._pending_since_ms is not None and now_ms >= self._pending_since_ms + self._trigger_ms

    def rebootstrapped(self, now_ms: int) -> None:
        """The brokers were learned anew; everything else is wanted now, after the back-off of the failed attempts."""
        self._pending_since_ms = now_ms
        self._full_wanted = True
        self._full_not_before_ms = 0

    def _full_due_ms(self) -> int:
        wanted_ms = 0 if self._full_wanted else self.full_at_ms + self._max_age_ms
        return max(wanted_ms, self._full_not_before_ms)

    def _delay_ms(self, failures: int) -> int:
        return max(self._backoff.delay_ms(max(failures - 1, 0), self._rng), LEAST_DELAY_MS)

    def _forget_expired(self, now_ms: int, still_used: Callable[[str], bool]) -> None:
        while self._topics:
            topic = next(iter(self._topics))
            if self._topics[topic].expires_ms > now_ms:
                break
            if still_used(topic):
                self.use(topic, now_ms)
            else:
                del self._topics[topic]
                self._wanted.pop(topic, None)
