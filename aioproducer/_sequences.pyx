"""SequenceBooks: which batch of a partition may go next, with which sequence, and what an acknowledgement changes.

Every batch passes through here. The handling of failures (gaps and epoch bumps) is in transaction/manager.py, with the
theory of operation for both.
"""

import cython

from aioproducer._producer_batch cimport IN_FLIGHT, PartitionQueue, ProducerBatch

from aioproducer.records import TopicPartition

cdef enum:
    NO_PRODUCER_ID = -1
    NO_EPOCH = -1
    SEQUENCE_MASK = 0x7FFFFFFF
    UNRESOLVED = 5          # a broker remembers five batches of a producer in each partition
    FAMILIAR_MS = 60000     # after a longer pause, a leader is taken to have forgotten the producer

# The same for Python.
MAX_UNRESOLVED = UNRESOLVED
KNOWN_FOR_MS = FAMILIAR_MS


cpdef int32_t next_sequence(int32_t sequence, int64_t records) noexcept:
    return <int32_t>((sequence + records) & SEQUENCE_MASK)


@cython.final
cdef class PartitionSequences:

    def __cinit__(self):
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.known_producer_id = NO_PRODUCER_ID
        self.topic_id = b""
        self.former = ()
        self.unsettled = ()
        self.leader_epoch = NO_EPOCH
        self.numbered = []

    cdef int add(self, ProducerBatch batch) except -1:
        batch.numbered_before = self.count
        self.numbered.append(batch)
        self.count += 1
        return 0

    cpdef strike(self, ProducerBatch batch):
        del self.numbered[self.place_of(batch)]

    def replace(self, ProducerBatch batch not None, pieces):
        cdef Py_ssize_t at = self.place_of(batch)
        for piece in pieces:
            (<ProducerBatch?>piece).numbered_before = batch.numbered_before
        self.numbered[at:at + 1] = pieces

    cdef bint is_first(self, ProducerBatch batch) noexcept:
        return len(self.numbered) > 0 and self.numbered[0] is batch

    cdef Py_ssize_t place_of(self, ProducerBatch batch) except -1:
        return 0 if self.is_first(batch) else self.numbered.index(batch)

    cdef tuple order_of_last(self):
        cdef Py_ssize_t count = len(self.numbered)
        return (<ProducerBatch>self.numbered[count - 1]).order_in_partition() if count else ()

    cdef int turn(self, bytes topic_id) except -1:
        """The next attempt goes to the topic with this id; a new id means a new log, of which nothing is known."""
        if topic_id is not self.topic_id and topic_id != self.topic_id:
            self.topic_id = topic_id
            self.former = self.order_of_last()
            self.unsettled = ()
            self.leader_epoch = NO_EPOCH
            self.known_producer_id = NO_PRODUCER_ID
            for batch in self.numbered:
                (<ProducerBatch>batch).followed = False
            if self.absent is not None:
                self.may_be_written()
        return 0

    cdef bint has_room(self) noexcept:
        return len(self.numbered) == 0 or self.count - (<ProducerBatch>self.numbered[0]).numbered_before < UNRESOLVED

    def is_settled(self):
        for batch in self.numbered:
            if batch.in_flight or batch.in_doubt:
                return False
        return True

    def open_gap(self, batch):
        self.gap = batch.order if self.gap is None else max(self.gap, batch.order)

    cdef int may_be_written(self) except -1:
        """What was absent is sent again, or a log does without it.

        Then what is left behind it on an abandoned connection may be written, too.
        """
        cdef ProducerBatch other
        for item in self.numbered:
            other = <ProducerBatch>item
            if other.order_in_partition() > self.absent and other.maybe_written:
                other.begin_doubt()     # no refusal counts that came before
        self.absent = None
        return 0

    cpdef bint is_known(self) noexcept:
        return self.known_producer_id == self.producer_id

    cpdef bint leaves_in_doubt(self, ProducerBatch batch) noexcept:
        return batch.in_doubt and batch.leader_epoch < self.leader_epoch

    cdef bint may_follow(self, ProducerBatch batch):
        """Whether to find out if this is the last written batch, which is all that a restarted broker remembers.

        The first one was refused and is on its way again; this one follows it at once.
        """
        cdef ProducerBatch other = <ProducerBatch>self.numbered[0]
        if not self.is_known() or not other.in_doubt or other.refused_ms < 0:
            return False
        for item in self.numbered:
            other = <ProducerBatch>item
            if other is batch:
                break
            if other.state != IN_FLIGHT or other.leader_epoch != batch.queue.leader_epoch:
                return False
        return True

    cdef int note_followed(self, ProducerBatch batch) except -1:
        """A leader that knows the producer took this one, so it has, or had, all those before it."""
        cdef ProducerBatch other
        for item in self.numbered:
            other = <ProducerBatch>item
            if other is batch:
                break
            other.followed = True
        return 0

    def is_beyond_proof(self, ProducerBatch batch not None):
        """Whether no answer can show any more if this batch, refused for good, is in the log.

        One behind it has ended in doubt, and may be the last written one, which is all that a restarted broker
        remembers; all others were refused for good, too.
        """
        cdef ProducerBatch other
        if batch.order_in_partition() > self.unsettled:
            return False
        for item in self.numbered:
            other = <ProducerBatch>item
            if other is not batch and (other.state == IN_FLIGHT or other.in_doubt and not other.denied):
                return False
        return True

    def refused_for_good(self, ProducerBatch batch not None):
        cdef ProducerBatch other
        cdef ProducerBatch oldest = None
        batch.denied = True
        if not self.is_known():
            self.rule_out(batch)
            return
        for item in self.numbered:
            other = <ProducerBatch>item
            if other.state == IN_FLIGHT or other.in_doubt and not other.denied:
                return
            if oldest is None and other.in_doubt and not other.followed:
                oldest = other
        self.rule_out(oldest)

    def rule_out(self, batch):
        self.absent = batch.order if self.absent is None else min(self.absent, batch.order)
        for other in self.numbered:
            if other.order >= batch.order:
                other.in_doubt = False


cdef class SequenceBooks:

    def __init__(self, *, bint idempotent, transaction_partitions=None):
        self.idempotent = idempotent
        self.transaction_partitions = transaction_partitions
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.partitions = {}

    def may_send(self, ProducerBatch batch not None):
        cdef PartitionSequences books
        if not self.idempotent:
            return True
        books = self.books_of(batch)
        books.turn(batch.queue.topic.topic_id)
        if batch.base_sequence >= 0:
            # A retried batch goes only as the first of its partition; a batch that overtakes another is out of order.
            return books.is_first(batch) or books.may_follow(batch)
        if self.producer_id == NO_PRODUCER_ID:
            return False
        if self.transaction_partitions is not None:
            if not self.transaction_partitions.may_send(TopicPartition(batch.topic, batch.partition)):
                return False
        if len(books.numbered) == 0:
            return True
        # A leader that does not know the producer accepts any sequence as the first (KIP-360), so until it has
        # acknowledged one batch, a second one could be written in place of the first. The leader of a recreated
        # topic knows no producer, and one that heard nothing from the producer for long may have forgotten it.
        return books.is_known() and books.gap is None and self.is_current(books) and books.has_room()

    def drop_all(self):
        cdef PartitionSequences books
        for item in self.partitions.values():
            books = <PartitionSequences>item
            books.numbered = []

    def all_books(self):
        return list(self.partitions.values())

    def number_all(self, list batches not None):
        for batch in batches:
            self.give_number(<ProducerBatch?>batch)

    cdef int give_number(self, ProducerBatch batch) except -1:
        cdef PartitionSequences books
        if not self.idempotent:
            return 0
        books = self.books_of(batch)
        books.leader_epoch = max(books.leader_epoch, batch.leader_epoch)
        if batch.base_sequence >= 0:
            if books.absent is not None and (batch.order_in_partition() <= books.absent or not books.is_known()):
                books.may_be_written()
            return 0
        if len(books.numbered) == 0:
            if not self.is_current(books):
                books.producer_id, books.epoch, books.next = self.producer_id, self.epoch, 0
                books.gap = books.absent = None
                books.unsettled = ()
            if batch.drained_ms - books.heard_ms >= FAMILIAR_MS:
                books.known_producer_id = NO_PRODUCER_ID
        cdef bint transactional = self.transaction_partitions is not None
        if transactional:
            self.transaction_partitions.sent(TopicPartition(batch.topic, batch.partition))
        batch.set_producer_state(books.producer_id, <int16_t>books.epoch, books.next, transactional)
        books.next = next_sequence(books.next, batch.record_count)
        books.add(batch)
        return 0

    cdef int strike_acknowledged(self, ProducerBatch batch) except -1:
        """A batch is in the log. So its leader knows the producer, and an older batch that left a gap is there too."""
        cdef PartitionSequences books
        if batch.base_sequence < 0:
            return 0
        books = self.books_of(batch)
        cdef bint is_here = len(books.former) == 0 or batch.order_in_partition() > books.former
        if is_here and books.is_known() and not books.is_first(batch):
            books.note_followed(batch)
        books.strike(batch)
        if is_here:
            books.known_producer_id = batch.producer_id
            books.heard_ms = batch.drained_ms
        if books.gap is not None:
            if batch.order_in_partition() >= books.gap:
                books.gap = None        # a leader without our earlier batches took it, or has them all
                if books.absent is not None and batch.order_in_partition() >= books.absent:
                    books.may_be_written()
            self._bump_if_settled(books)
        return 0

    def _books_of(self, ProducerBatch batch not None):
        return self.books_of(batch)

    cdef PartitionSequences books_of(self, ProducerBatch batch):
        cdef PartitionQueue queue = batch.queue
        if queue.books is None:
            key = (queue.topic.name, queue.partition)   # the queue may be new, the partition known
            books = self.partitions.get(key)
            if books is None:
                books = self.partitions[key] = PartitionSequences.__new__(PartitionSequences)
            queue.books = books
        return <PartitionSequences>queue.books

    def _is_current(self, PartitionSequences books not None):
        return self.is_current(books)

    cdef bint is_current(self, PartitionSequences books) noexcept:
        return books.producer_id == self.producer_id and books.epoch == self.epoch

    @property
    def has_gap(self):
        cdef PartitionSequences books
        for item in self.partitions.values():
            books = <PartitionSequences>item
            if books.gap is not None and self.is_current(books):
                return True
        return False
