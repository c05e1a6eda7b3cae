"""Which metadata to request and when, with time set by hand."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.metadata_schedule import COALESCE_MS, LEAST_DELAY_MS, MetadataSchedule, MetadataUpdate

MAX_AGE_MS = 300_000
IDLE_MS = 200_000


class Walk:
    """A schedule and its time. Back-offs are 100, 200, 400, 800, 1000, 1000 ms, with a jitter of 20 %."""

    def __init__(self, **values: object) -> None:
        config = ProducerConfig.parse({"bootstrap_servers": "unused:1", "metadata_max_idle_ms": IDLE_MS, **values})
        self.schedule = MetadataSchedule(config, random.Random(1))
        self.now_ms = 1_000_000
        self.schedule.started(self.now_ms)
        self.to_create: Collection[str] = ()
        """The topics that are missing and needed."""

    @property
    def due_in_ms(self) -> int:
        return self.schedule.due_ms() - self.now_ms

    def use(self, *topics: str) -> None:
        for topic in topics:
            self.schedule.use(topic, self.now_ms)

    def begin(self) -> MetadataUpdate:
        assert self.due_in_ms <= 0
        return self.schedule.begin(self.now_ms, lambda topic: False, lambda topic: topic in self.to_create)

    def succeed(
        self,
        *,
        failing: Collection[str] = (),
        again: Collection[str] | None = None,
        missing: Collection[str] | None = None,
        news: bool = False,
    ) -> MetadataUpdate:
        update = self.begin()
        again = failing if again is None else again
        missing = failing if missing is None else missing
        self.schedule.succeeded(update, self.now_ms, failing=failing, again=again, missing=missing, news=news)
        return update

    def fail(self) -> MetadataUpdate:
        update = self.begin()
        self.schedule.failed(update, self.now_ms)
        return update

    def wait(self) -> int:
        """Advance the time until something is due; returns how long that took."""
        waited_ms = max(self.due_in_ms, 0)
        self.now_ms += waited_ms
        return waited_ms


def test_nothing_is_due_before_the_brokers_are_old() -> None:
    walk = Walk()
    assert walk.due_in_ms == MAX_AGE_MS
    walk.wait()
    assert walk.begin() == MetadataUpdate((), full=True, by_age=True)


def test_a_new_topic_is_due_at_once_and_alone() -> None:
    walk = Walk()
    walk.use("a")
    assert walk.due_in_ms <= 0
    assert walk.succeed() == MetadataUpdate(("a",), full=False)
    walk.use("a")
    assert walk.due_in_ms == MAX_AGE_MS
    walk.use("b", "c")
    assert walk.succeed().topics == ("b", "c")
    assert list(walk.schedule.topics) == ["a", "b", "c"]


def test_a_topic_that_is_needed_need_not_be_in_use() -> None:
    walk = Walk()
    assert not walk.schedule.answered_lately("a", walk.now_ms)
    assert walk.schedule.failures("a") == 0
    assert walk.schedule.want("a", walk.now_ms)
    assert not walk.schedule.want("a", walk.now_ms)
    assert walk.succeed().topics == ("a",)
    assert walk.schedule.answered_lately("a", walk.now_ms + 79)
    assert not walk.schedule.answered_lately("a", walk.now_ms + 121)


def test_the_back_off_without_answers_begins_anew_after_an_answer() -> None:
    walk = Walk()
    walk.use("a")
    for _ in range(5):
        walk.fail()
        walk.wait()
    walk.succeed()
    walk.use("b")
    walk.fail()
    assert walk.wait() <= 120


def test_a_full_update_is_asked_for_and_covers_everything() -> None:
    walk = Walk()
    walk.use("a", "b")
    walk.succeed()
    walk.schedule.want_all()
    walk.use("new")
    assert walk.succeed() == MetadataUpdate(("a", "b", "new"), full=True)
    assert walk.due_in_ms == MAX_AGE_MS


def test_full_updates_are_spaced_and_more_so_while_they_bring_nothing() -> None:
    walk = Walk()
    waits = []
    for _ in range(7):
        walk.schedule.want_all()
        waits.append(walk.wait())
        assert walk.succeed().full
    assert waits[0] == 0
    for waited_ms, expected_ms in zip(waits[1:], (100, 200, 400, 800, 1000, 1000), strict=True):
        assert 0.8 * expected_ms - 1 <= waited_ms <= 1.2 * expected_ms


def test_news_resets_the_spacing() -> None:
    walk = Walk()
    for _ in range(6):
        walk.schedule.want_all()
        walk.wait()
        walk.succeed()
    walk.schedule.want_all()
    assert walk.wait() >= 800
    walk.succeed(news=True)
    walk.schedule.want_all()
    assert 80 <= walk.wait() <= 120


def test_updates_by_age_do_not_count_as_useless() -> None:
    walk = Walk()
    for _ in range(5):
        assert walk.wait() == MAX_AGE_MS
        assert walk.succeed().by_age
    walk.schedule.want_all()
    assert walk.wait() <= 120


def test_new_topics_do_not_wait_for_the_spacing_of_full_updates() -> None:
    walk = Walk()
    walk.schedule.want_all()
    walk.succeed()
    walk.schedule.want_all()
    assert walk.due_in_ms > 0
    walk.use("a")
    assert walk.succeed() == MetadataUpdate(("a",), full=False)
    assert walk.due_in_ms > 0
    walk.wait()
    assert walk.begin().full


def test_a_broken_topic_is_asked_for_later_and_later_and_delays_no_other() -> None:
    walk = Walk()
    walk.use("broken")
    walk.succeed(failing=["broken"])
    for number, expected_ms in enumerate((100, 200, 400, 800, 1000, 1000)):
        assert 0.8 * expected_ms - 1 <= walk.due_in_ms <= 1.2 * expected_ms
        walk.use(f"new-{number}")
        assert walk.due_in_ms <= 0
        walk.succeed()
        walk.wait()
        assert walk.succeed(failing=["broken"]).topics == ("broken",)


def test_a_topic_that_healed_starts_its_back_off_anew() -> None:
    walk = Walk()
    walk.use("a")
    for _ in range(5):
        walk.wait()
        walk.succeed(failing=["a"])
    walk.wait()
    walk.succeed()
    assert walk.due_in_ms > 1_000
    assert walk.schedule.want("a", walk.now_ms)
    assert walk.wait() <= 120


def test_topics_whose_turn_is_close_go_along() -> None:
    walk = Walk(retry_backoff_max_ms=100)  # constant
    walk.use("a")
    walk.succeed(failing=["a"])
    walk.now_ms += COALESCE_MS // 2
    walk.use("b")
    walk.succeed(failing=["b"])
    walk.wait()
    assert walk.begin().topics == ("a", "b")


def test_a_refused_topic_is_asked_for_again_only_when_wanted() -> None:
    walk = Walk()
    walk.use("secret")
    walk.succeed(failing=["secret"], again=())
    assert walk.due_in_ms == MAX_AGE_MS
    assert walk.schedule.answered_lately("secret", walk.now_ms)
    assert walk.schedule.want("secret", walk.now_ms)
    assert 80 <= walk.wait() <= 120
    assert not walk.schedule.answered_lately("secret", walk.now_ms)
    assert walk.succeed(failing=["secret"], again=()).topics == ("secret",)
    assert walk.schedule.want("secret", walk.now_ms)
    assert 160 <= walk.wait() <= 240


def test_what_is_asked_for_already_is_not_wanted_twice() -> None:
    walk = Walk()
    walk.use("a")
    assert not walk.schedule.want("a", walk.now_ms)
    update = walk.begin()
    assert not walk.schedule.want("a", walk.now_ms)
    walk.schedule.succeeded(update, walk.now_ms, failing=(), again=(), missing=(), news=False)
    assert walk.schedule.want("a", walk.now_ms)


def test_wishes_during_an_update_are_not_lost() -> None:
    walk = Walk()
    walk.use("a")
    walk.schedule.want_all()
    update = walk.begin()
    assert update.full
    walk.schedule.want_all()
    walk.use("b")
    walk.schedule.succeeded(update, walk.now_ms, failing=(), again=(), missing=(), news=False)
    assert walk.succeed().topics == ("b",)
    assert walk.wait() <= 120
    assert walk.begin().full


def test_answers_in_a_row_that_did_not_help_are_counted() -> None:
    walk = Walk()
    walk.use("a")
    for failures in 1, 2, 3:
        walk.wait()
        walk.succeed(failing=["a"])
        assert walk.schedule.failures("a") == failures
    walk.wait()
    walk.succeed()
    assert walk.schedule.failures("a") == 0


def test_failed_attempts_hold_up_everything_longer_and_longer() -> None:
    walk = Walk()
    walk.use("a")
    walk.schedule.want_all()
    for expected_ms in (100, 200, 400, 800, 1000, 1000):
        assert walk.fail().full
        walk.use(f"new{expected_ms}")
        assert 0.8 * expected_ms - 1 <= walk.wait() <= 1.2 * expected_ms
    assert "a" in walk.succeed().topics
    walk.use("b")
    assert walk.due_in_ms <= 0


def test_a_failed_partial_update_is_repeated() -> None:
    walk = Walk()
    walk.use("a")
    assert walk.fail() == MetadataUpdate(("a",), full=False)
    walk.wait()
    assert walk.succeed() == MetadataUpdate(("a",), full=False)


def test_a_partial_update_that_fails_forgets_no_wish_for_a_full_one() -> None:
    """Its connection ends, so leaders have to be looked for: both updates have to be requested again."""
    walk = Walk()
    walk.use("a")
    walk.succeed()
    walk.use("b")
    update = walk.begin()
    assert update == MetadataUpdate(("b",), full=False)
    walk.schedule.want_all()
    walk.schedule.failed(update, walk.now_ms)
    assert walk.wait() <= 120
    assert walk.succeed() == MetadataUpdate(("a", "b"), full=True)
    assert walk.due_in_ms == MAX_AGE_MS


def test_a_rebootstrap_does_not_wait_for_the_spacing_of_full_updates() -> None:
    """The spacing applies after answers without news, and these brokers have not answered yet."""
    walk = Walk()
    walk.use("a")
    for _ in range(5):
        walk.schedule.want_all()
        walk.wait()
        walk.succeed()
    walk.schedule.want_all()
    assert walk.due_in_ms >= 800
    walk.schedule.rebootstrapped(walk.now_ms)
    assert walk.due_in_ms <= 0
    assert walk.succeed() == MetadataUpdate(("a",), full=True)


def test_topics_that_may_be_created_are_asked_for_apart_from_others() -> None:
    walk = Walk()
    walk.use("a", "b", "c")
    walk.to_create = ("b",)
    assert walk.succeed() == MetadataUpdate(("a", "c"), full=False)
    assert walk.succeed(failing=["b"]) == MetadataUpdate(("b",), full=False, creates=True)
    walk.schedule.want_all()
    walk.now_ms += 1_000
    walk.use("d")
    assert walk.succeed() == MetadataUpdate(("a", "c", "d"), full=True)
    assert walk.due_in_ms <= 0
    assert walk.succeed() == MetadataUpdate(("b",), full=False, creates=True)
    assert walk.due_in_ms > 1_000


def test_a_full_update_covers_missing_topics_that_are_not_asked_for_by_themselves() -> None:
    walk = Walk()
    walk.use("secret")
    walk.to_create = ("secret",)
    walk.succeed(failing=["secret"], again=())
    walk.schedule.want_all()
    assert walk.succeed() == MetadataUpdate(("secret",), full=True)


def test_a_full_update_may_create_topics_if_there_are_no_others() -> None:
    walk = Walk()
    walk.use("a", "b")
    walk.to_create = ("a", "b")
    walk.schedule.want_all()
    assert walk.succeed() == MetadataUpdate(("a", "b"), full=True, creates=True)
    assert walk.due_in_ms == MAX_AGE_MS


def test_a_topic_is_needed_until_an_answer_has_it() -> None:
    walk = Walk()
    walk.use("a")
    walk.succeed(failing=["a"])
    assert walk.schedule.is_needed("a")
    walk.wait()
    walk.succeed(failing=["a"], missing=())  # it has no leader yet
    assert not walk.schedule.is_needed("a")
    walk.wait()
    walk.succeed(failing=["a"])  # and now it is gone
    walk.use("a")
    assert not walk.schedule.is_needed("a")
    walk.schedule.want("a", walk.now_ms)
    assert walk.schedule.is_needed("a")


def test_unused_topics_are_forgotten() -> None:
    walk = Walk()
    walk.use("a", "b")
    walk.succeed()
    walk.now_ms += IDLE_MS - 1
    walk.use("b")
    walk.now_ms += 1
    walk.schedule.want_all()
    assert walk.succeed().topics == ("b",)
    assert list(walk.schedule.topics) == ["b"]
    assert walk.schedule.use("a", walk.now_ms)  # new again
    assert walk.begin().topics == ("a",)


def test_a_broken_topic_that_nobody_uses_is_not_asked_for_for_ever() -> None:
    walk = Walk()
    walk.use("broken")
    walk.succeed(failing=["broken"])
    walk.now_ms += IDLE_MS
    assert walk.begin().topics == ()
    assert not walk.schedule.topics


def test_topics_with_records_in_the_buffer_are_kept() -> None:
    walk = Walk()
    walk.use("a", "b")
    walk.succeed()
    walk.now_ms += IDLE_MS
    walk.schedule.want_all()
    update = walk.schedule.begin(walk.now_ms, lambda topic: topic == "a", lambda topic: False)
    assert update.topics == ("a",)
    walk.schedule.succeeded(update, walk.now_ms, failing=(), again=(), missing=(), news=False)
    walk.now_ms += IDLE_MS - 1
    walk.schedule.want_all()
    assert walk.succeed().topics == ("a",)


def test_without_any_back_off_there_is_still_no_busy_loop() -> None:
    walk = Walk(retry_backoff_ms=0, retry_backoff_max_ms=0)
    walk.use("a")
    walk.fail()
    assert walk.wait() == LEAST_DELAY_MS
    walk.succeed(failing=["a"])
    assert walk.wait() == LEAST_DELAY_MS
    walk.schedule.want_all()
    walk.succeed()
    walk.schedule.want_all()
    assert walk.wait() == LEAST_DELAY_MS


def test_pending_too_long_counts_from_the_first_attempt() -> None:
    walk = Walk(metadata_recovery_rebootstrap_trigger_ms=5_000)
    assert not walk.schedule.pending_too_long(walk.now_ms + 10_000)
    walk.use("a")
    began_ms = walk.now_ms
    walk.fail()
    walk.wait()
    walk.fail()
    assert not walk.schedule.pending_too_long(began_ms + 4_999)
    assert walk.schedule.pending_too_long(began_ms + 5_000)
    walk.wait()
    walk.succeed()
    assert not walk.schedule.pending_too_long(began_ms + 50_000)


def test_after_a_rebootstrap_everything_is_wanted_but_the_back_off_stays() -> None:
    walk = Walk(metadata_recovery_rebootstrap_trigger_ms=5_000)
    walk.use("a")
    walk.fail()
    walk.now_ms += 6_000
    assert walk.schedule.pending_too_long(walk.now_ms)
    walk.fail()
    walk.schedule.rebootstrapped(walk.now_ms)
    assert not walk.schedule.pending_too_long(walk.now_ms)
    assert walk.due_in_ms >= 160
    walk.wait()
    assert walk.succeed() == MetadataUpdate(("a",), full=True)


@pytest.mark.parametrize("max_age_ms", [0, 1])
def test_an_age_of_nothing_does_not_make_a_busy_loop(max_age_ms: int) -> None:
    walk = Walk(metadata_max_age_ms=max_age_ms)
    walk.wait()
    walk.succeed()
    assert walk.due_in_ms >= 80
