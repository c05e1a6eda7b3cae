"""The sums behind the metrics, window by window; compiled, because recording runs once per batch.

Theory of operation. All names of one group (producer, topic, node) are fields of one object per window, so recording
means finding the window and a few additions. A window opens with the first event after the previous one is over. Its
counts are recent until its last event is `samples` window lengths ago; then they move to the lifetime counts.

Source: Kafka's SampledStat, Rate, Avg, Max.
"""

import cython

from aioproducer._producer_batch cimport ProducerBatch, TopicQueues
from aioproducer._record_batch cimport HEADER_BYTES

cdef int64_t NEVER = -0x7FFFFFFFFFFFFFFF
cdef int64_t LONGEST_MS = 1 << 61   # of all windows together, so that no sum of times overflows


cdef class Counts:

    @classmethod
    def names(cls):
        return [name for name, value in vars(cls).items() if type(value).__name__ == "getset_descriptor"]

    def values(self):
        return {name: getattr(self, name) for name in self.names()}

    def add(self, Counts other not None):
        for name in self.names():
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name.endswith("_max") else mine + theirs)

    def __eq__(self, other):
        return type(self) is type(other) and self.values() == other.values()

    def __repr__(self):
        return f"{type(self).__name__}({', '.join([f'{name}={value}' for name, value in self.values().items()])})"


@cython.final
cdef class TopicCounts(Counts):
    pass


@cython.final
cdef class NodeCounts(Counts):
    pass


@cython.final
cdef class ProducerCounts(Counts):
    pass


@cython.final
@cython.no_gc
cdef class Window:
    pass


@cython.final
@cython.no_gc       # it holds only a class and numbers, and there is one per topic
cdef class Windows:

    def __cinit__(self, make, int64_t samples, int64_t window_ms):
        self.make = make
        self.samples = samples
        self.window_ms = max(min(window_ms, LONGEST_MS // samples), 1)
        self.open_until_ms = NEVER
        self.lifetime = make()
        self.windows = []

    def at(self, int64_t now_ms):
        return self.counts_at(now_ms)

    cdef Counts counts_at(self, int64_t now_ms):
        cdef Window window
        if now_ms >= self.open_until_ms:
            self.expire(now_ms)
            window = Window.__new__(Window)
            window.start_ms = now_ms
            window.counts = self.make()
            self.windows.append(window)
            self.latest = window
            self.open_until_ms = now_ms + self.window_ms
        self.latest.last_event_ms = now_ms
        return self.latest.counts

    def recent(self, int64_t now_ms):
        cdef Counts recent = self.make()
        self.expire(now_ms)
        for window in self.windows:
            recent.add((<Window>window).counts)
        return recent

    def total(self, int64_t now_ms):
        cdef Counts total = self.recent(now_ms)
        total.add(self.lifetime)
        return total

    def elapsed_ms(self, int64_t now_ms):
        """At least all windows but one: a new producer would otherwise divide its first events by almost nothing."""
        cdef int64_t elapsed_ms = 0
        self.expire(now_ms)
        if self.windows:
            elapsed_ms = now_ms - (<Window>self.windows[0]).start_ms
        return elapsed_ms + max(self.samples - 1 - elapsed_ms // self.window_ms, 0) * self.window_ms

    cdef int expire(self, int64_t now_ms) except -1:
        cdef Window oldest
        while self.windows:
            oldest = <Window>self.windows[0]
            if now_ms - oldest.last_event_ms < self.samples * self.window_ms:
                return 0
            del self.windows[0]     # first: a finalizer that the addition runs may read the metrics
            self.lifetime.add(oldest.counts)
        self.latest = None
        self.open_until_ms = NEVER
        return 0


def count_batches_sent(Windows producer not None, dict topics not None, make_windows, list batches not None,
                       int64_t now_ms):
    cdef ProducerCounts total = <ProducerCounts?>producer.counts_at(now_ms)
    cdef TopicCounts of_topic = None
    cdef TopicQueues topic = None
    cdef ProducerBatch batch
    cdef int64_t wire_bytes, plain_bytes, records, queue_ms, largest
    cdef double ratio
    total.produce_requests += 1
    for item in batches:
        batch = <ProducerBatch?>item
        if batch.queue.topic is not topic:
            topic = batch.queue.topic
            if topic.counts is None:
                topic.counts = topics.get(topic.name)
            if topic.counts is None:
                topic.counts = topics[topic.name] = make_windows(TopicCounts)
            of_topic = <TopicCounts?>(<Windows?>topic.counts).counts_at(now_ms)
        wire_bytes = batch.wire_size()
        plain_bytes = batch.size_bytes
        records = batch.result.record_count
        largest = batch.largest_record_bytes
        queue_ms = now_ms - batch.created_ms
        ratio = wire_bytes / <double>(plain_bytes + HEADER_BYTES)
        total.batches += 1
        total.batch_bytes += wire_bytes
        total.batch_bytes_max = max(total.batch_bytes_max, wire_bytes)
        total.compression_ratios += ratio
        total.queue_ms += queue_ms
        total.queue_ms_max = max(total.queue_ms_max, queue_ms)
        total.records += records
        total.record_bytes += plain_bytes
        total.record_bytes_max = max(total.record_bytes_max, largest)
        of_topic.batches += 1
        of_topic.batch_bytes += wire_bytes
        of_topic.compression_ratios += ratio
        of_topic.records += records


def count_answer(Windows producer not None, Traffic traffic not None, int64_t latency_ms, int64_t throttle_ms,
                 int64_t now_ms):
    cdef ProducerCounts total = <ProducerCounts?>producer.counts_at(now_ms)
    total.throttles += 1
    total.throttle_ms += throttle_ms
    total.throttle_ms_max = max(total.throttle_ms_max, throttle_ms)
    add_latency(<NodeCounts?>traffic.node.counts_at(now_ms), latency_ms)
    add_latency(<NodeCounts?>traffic.network.counts_at(now_ms), latency_ms)


cdef int add_latency(NodeCounts counts, int64_t latency_ms) except -1:
    counts.latencies += 1
    counts.latency_ms += latency_ms
    counts.latency_ms_max = max(counts.latency_ms_max, latency_ms)
    return 0


@cython.final
cdef class Traffic:

    def __cinit__(self, Windows node not None, Windows network not None):
        self.node = node
        self.network = network

    def sent(self, int64_t size_bytes, int64_t now_ms):
        add_request(<NodeCounts?>self.node.counts_at(now_ms), size_bytes)
        add_request(<NodeCounts?>self.network.counts_at(now_ms), size_bytes)

    def received(self, int64_t size_bytes, int64_t now_ms):
        add_response(<NodeCounts?>self.node.counts_at(now_ms), size_bytes)
        add_response(<NodeCounts?>self.network.counts_at(now_ms), size_bytes)


cdef int add_request(NodeCounts counts, int64_t size_bytes) except -1:
    counts.requests += 1
    counts.request_bytes += size_bytes
    counts.request_bytes_max = max(counts.request_bytes_max, size_bytes)
    return 0


cdef int add_response(NodeCounts counts, int64_t size_bytes) except -1:
    counts.responses += 1
    counts.response_bytes += size_bytes
    return 0
