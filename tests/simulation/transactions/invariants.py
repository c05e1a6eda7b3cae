"""What always holds for transactions, checked after a run: what readers see, compared with what programs were told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.errors import KafkaError, ProducerClosedError, ProducerFailedError
from tests.simulation.invariants import Invariants, _number
from tests.simulation.records import State, maybe_written
from tests.simulation.transactions.ledger import GROUP, POSITION, Fate

if TYPE_CHECKING:
    from aioproducer._buffer_pool import BufferPool
    from aioproducer.testing.fake.frames import RequestFrame
    from aioproducer.testing.fake.partition_log import LogRecord
    from aioproducer.testing.fake.topology import Topic
    from tests.simulation.link import Link
    from tests.simulation.producer import SimulatedProducer
    from tests.simulation.records import Sent
    from tests.simulation.transactions.ledger import Ledger, Written
    from tests.simulation.transactions.process import Process

MUCH_LATER_MS = 3_600_000
NEVER = (-1, -1)


class TransactionInvariants(Invariants):
    """The checks of one run with transactions."""

    ledger: Ledger
    _pools: list[BufferPool] | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._gone: set[int] = set()
        """Records in the logs of topics that were deleted."""

    def watch_also(self, producer: SimulatedProducer) -> None:
        """Check this producer's memory in each turn of the loop from now on."""
        assert producer.engine is not None
        if self._pools is None:
            self._pools = []
            self._loop.on_turn = self._look
        self._pools.append(producer.engine.accumulator.pool)

    def _look(self) -> None:
        for pool in self._pools or ():
            if pool.used_bytes > pool.total_bytes:
                self._broken("%d bytes in use, buffer_memory=%d", pool.used_bytes, pool.total_bytes)

    def _request(self, link: Link, request: RequestFrame) -> None:
        """Back-offs are checked in the other runs; while a transaction is ending, leaders cause a different one."""

    def _answer(self, link: Link, request: RequestFrame) -> None:
        pass

    def after_all(self, processes: list[Process]) -> None:
        """Everything that has to hold once all producers are closed, or killed."""
        self._model.advance(self._network.model_now_ms() + MUCH_LATER_MS)
        appended = 0
        for process in processes:
            if process.producer.engine is not None:
                self._nothing_left(process.producer)
                appended += process.producer.engine.accumulator.appended_records
        self._ends(appended)
        order = {process.name: process.started for process in processes if process.started is not None}
        seen: dict[int, list[str]] = {}
        for topic in self._chaos.topics:
            exists = self._model.topics.get(topic.name) is topic
            for partition in topic.partitions:
                log = partition.log
                if not exists:
                    self._gone.update(number for entry in log.read() if (number := _number(entry.value)) is not None)
                elif log.last_stable_offset != log.end_offset:
                    self._broken(
                        "readers of %s-%d stop at %d for ever, where a transaction began that nobody ends",
                        topic.name,
                        partition.index,
                        log.last_stable_offset,
                    )
                self._replicas(topic, partition)
                self._written(topic, partition.index, log.read())
                self._one_view(topic, partition.index, log.read(read_committed=True), order, seen)
        for one in self.ledger.written:
            self._one_transaction(one, seen)
        self._positions(seen)
        for context in self._loop.errors:
            self._broken("nobody took: %s %r", context.get("message"), context.get("exception"))

    def _written(self, topic: Topic, index: int, log: list[LogRecord]) -> None:
        """8: what is in the log at all, visible or not."""
        for entry in log:
            number = _number(entry.value)
            if number is None or number >= len(self._books.records):
                self._broken("%s-%d holds at %d what nobody sent", topic.name, index, entry.offset)
                continue
            record = self._books.records[number]
            self._same(record, topic, index, entry)
            if record.state is State.REFUSED:
                self._broken("%s was not admitted, and is in the log", record)
            if record.state is State.FAILED and not maybe_written(record.error):
                self._broken("%s is in the log, and maybe_written is False", record)
            if number not in self.ledger.of_record:
                self._broken("%s is in the log, and in no transaction", record)

    def _one_view(
        self,
        topic: Topic,
        index: int,
        view: list[LogRecord],
        order: dict[str, tuple[int, int]],
        seen: dict[int, list[str]],
    ) -> None:
        """2: what a read_committed consumer gets: each record once, in the order in which they were sent."""
        latest: dict[str, int] = {}
        newest: dict[str, tuple[int, int]] = {}
        for entry in view:
            number = _number(entry.value)
            if number is None or number not in self.ledger.of_record:
                continue
            record, one = self._books.records[number], self.ledger.of_record[number]
            where = f"{topic.name}-{index}@{entry.offset}"
            seen.setdefault(number, []).append(where)
            if record.admitted is not None and record.admitted < latest.get(one.owner, -1):
                self._broken("%s: %s is behind one that was sent after it", where, record)
            latest[one.owner] = max(latest.get(one.owner, -1), record.began)
            transactional_id = one.owner[0]
            if order[one.owner] < newest.get(transactional_id, NEVER):
                self._broken("%s: %s of %s is behind what a newer producer wrote", where, record, one)
            newest[transactional_id] = max(newest.get(transactional_id, NEVER), order[one.owner])
            if record.metadata is not None and record.metadata.offset not in (-1, entry.offset):
                self._broken("%s: %s was acknowledged at %d", where, record, record.metadata.offset)

    def _one_transaction(self, one: Written, seen: dict[int, list[str]]) -> None:
        """16: all or none of a transaction is visible, in agreement with what the program was told."""
        for record in one.records:
            if record.admitted is not None and record.state is State.FAILED and not _says_what_to_do(record.error):
                self._broken("%s of %s failed, and tells nothing of what to do: %r", record, one, record.error)
        visible = [record for record in one.records if record.number in seen and not self._may_be_late(record)]
        offsets = self._model.coordinators.group(GROUP).offsets
        has_offsets = one.position in offsets
        for record in visible:
            if len(seen[record.number]) > 1:
                self._broken("%s of %s is visible more than once: %s", record, one, seen[record.number])
        shows_offsets = has_offsets and not self._offsets_may_be_late(one)
        something = f"{visible[0]} is visible" if visible else "its offsets are committed" if shows_offsets else None
        told = next(iter(one.fates.items()), None)
        if something is not None and not one.may_be_committed:
            self._broken("%s: nobody asked for a commit, and %s", one, something)
        elif something is not None and told is not None and told[0] is Fate.ABORTED:
            self._broken("%s is aborted, said %s, and %s", one, told[1], something)
        if something is None and (told is None or told[0] is Fate.ABORTED):
            return
        reason = f"said {told[1]}" if told is not None else f"as {something}"
        for record in one.records:
            if _belongs(record) and record.number not in seen and record.number not in self._gone:
                self._broken("%s is committed, %s, and %s is not visible", one, reason, record)
        if one.offsets_taken and not has_offsets:
            self._broken("%s is committed, %s, and its offsets are not", one, reason)

    def _may_be_late(self, record: Sent) -> bool:
        """Whether a record may have arrived after its transaction's end, and become part of the next one.

        Brokers before Kafka 3.6 do not ask the coordinator, and before V2 both have the same epoch (KIP-890).
        """
        return not self._model.version.verifies_transactions and maybe_written(record.error)

    def _offsets_may_be_late(self, one: Written) -> bool:
        """As with records: the group's coordinator does not verify either, and copies may come by other connections."""
        return not self._model.version.verifies_transactions and not self._scenario.calm and one.offsets_sent

    def _positions(self, seen: dict[int, list[str]]) -> None:
        """The position that all transactions set is that of a committed one."""
        offsets = self._model.coordinators.group(GROUP).offsets
        if POSITION in offsets:
            one = self.ledger.written[offsets[POSITION].offset]
            if self._offsets_may_be_late(one):
                return
            if one.position not in offsets:
                self._broken("the group is at the position of %s, which has committed none", one)
            for later in self.ledger.written[one.number + 1 :]:
                if later.position in offsets and later.owner == one.owner:
                    self._broken("the group is at the position of %s, and %s came after it", one, later)


def _belongs(record: Sent) -> bool:
    """Whether the program was told that the record is part of its transaction."""
    return record.admitted is not None or record.state is State.ACKED


def _says_what_to_do(error: BaseException | None) -> bool:
    """Whether a failed record says that its transaction can only be aborted, or the producer is done."""
    over = isinstance(error, (ProducerClosedError, ProducerFailedError))
    return over or (isinstance(error, KafkaError) and (error.abortable or error.fatal))
