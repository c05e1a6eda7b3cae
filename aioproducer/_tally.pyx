"""Tally: how the records of one send_many or send_arrow call ended; Share: the records of one batch that belong to it.

Theory of operation. These calls make no Delivery. Each batch that takes a record of such a call gets a Share, which
notes the record's place in the batch and its row in the call, as runs: a batch full of consecutive rows is one run.
When the batch ends it hands its Shares to their Tallies, which turn places into offset ranges, or rows into errors. A
split batch splits its Shares along with its records.

Observed or not. The records of a Share count as observed, because the call reports how they ended. When the call is
cancelled, the Tally is abandoned: its failures, past and future, go to the ledger of unobserved failures.
"""

import cython

from copy import copy
from operator import itemgetter

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport INT64_MAX

from aioproducer.records import MAX_ERRORS, BatchResult, TopicPartition

cdef enum:
    MAX_FAILURES = 1000     # failed batches listed one by one; records of further ones join the last


@cython.final
@cython.trashcan(True)      # a chain as long as the number of calls sharing a batch
cdef class Share:

    def __dealloc__(self):
        PyMem_Free(self.runs)

    cdef int add(self, int32_t place, int64_t row) except -1:
        cdef Run* last
        if self.run_count:
            last = &self.runs[self.run_count - 1]
            if last.place + last.count == place and last.row + last.count == row:
                last.count += 1
                self.count += 1
                return 0
        return self.push(place, 1, row)

    cdef int push(self, int32_t place, int32_t count, int64_t row) except -1:
        cdef Py_ssize_t capacity
        cdef Run* runs
        if self.run_count == self.capacity:
            capacity = 2 * self.capacity if self.capacity else 8
            runs = <Run*>PyMem_Realloc(self.runs, capacity * sizeof(Run))
            if runs == NULL:
                raise MemoryError()
            self.runs = runs
            self.capacity = capacity
        runs = &self.runs[self.run_count]
        runs.place = place
        runs.count = count
        runs.row = row
        self.run_count += 1
        self.count += count
        return 0

    cdef Share cut(self, int32_t first, int32_t count):
        """The part within `count` records from `first` on, with places relative to `first`; None if empty."""
        cdef Share part = Share.__new__(Share)
        cdef Run* run
        cdef int32_t begin, end
        cdef Py_ssize_t i
        part.tally = self.tally
        for i in range(self.run_count):
            run = &self.runs[i]
            begin = max(run.place, first)
            end = min(run.place + run.count, first + count)
            if begin < end:
                part.push(begin - first, end - begin, run.row + begin - run.place)
        return part if part.count else None


@cython.final
cdef class Tally:

    def __cinit__(self, topic, Py_ssize_t most_errors=MAX_ERRORS):
        self.topic = topic
        self.most_errors = max(1, most_errors)
        self.ranges = {}
        self.errors = []
        self.errors_below = INT64_MAX
        self.at_fault = []
        self.failures = []

    cdef int64_t unended(self) noexcept:
        return self.admitted - self.acked - (self.failed - self.refused)

    @property
    def pending(self):
        return self.unended()

    def refuse(self, error, topic=None):
        """Book the next row as failed, never admitted."""
        error._is_about(topic)
        self.keep(self.rows, error)
        self.rows += 1
        self.failed += 1
        self.refused += 1
        self.add_failure(error, NOT_BOOKED, 1)

    cdef void acknowledge(self, Share share, str topic, int32_t partition, int64_t base_offset):
        cdef Run* run
        cdef int64_t first = -1
        cdef int64_t end = -1
        cdef Py_ssize_t i
        self.acked += share.count
        if base_offset >= 0:
            key = partition if topic == self.topic else TopicPartition(topic, partition)
            ranges = self.ranges.get(key)
            if ranges is None:
                self.ranges[key] = ranges = []
            for i in range(share.run_count):
                run = &share.runs[i]
                if run.place != end:
                    if end >= 0:
                        self.add_range(ranges, base_offset + first, base_offset + end - 1)
                    first = run.place
                end = run.place + run.count
            self.add_range(ranges, base_offset + first, base_offset + end - 1)
        self.wake_if_ended()

    cdef void add_range(self, list ranges, int64_t first, int64_t last):
        if ranges:
            before = ranges[len(ranges) - 1]
            if before[1] + 1 == first:
                ranges[len(ranges) - 1] = (before[0], last)
                return
        ranges.append((first, last))

    cdef void fail(self, Share share, int64_t serial, object error, dict record_errors):
        cdef Run* run
        cdef Py_ssize_t i
        cdef int32_t j
        cdef Py_ssize_t kept = 0
        error = copy(error)     # the batch's own error is raised elsewhere and gets a traceback there
        self.failed += share.count
        self.add_failure(error, serial, share.count)
        for i in range(share.run_count):
            run = &share.runs[i]
            for j in range(run.count):
                if kept == self.most_errors or run.row + j >= self.errors_below:
                    break
                self.keep(run.row + j, error if record_errors is None else record_errors.get(run.place + j, error))
                kept += 1
        if record_errors is not None:
            self.blame(share, record_errors)
        self.wake_if_ended()

    cdef void blame(self, Share share, dict record_errors):
        """Keep the errors of the records that the broker named, whose rows the first errors may not reach."""
        cdef Run* run
        cdef Py_ssize_t i
        cdef int32_t j
        for i in range(share.run_count):
            run = &share.runs[i]
            for j in range(run.count):
                error = record_errors.get(run.place + j)
                if error is not None and error.record_refused:
                    self.at_fault.append((run.row + j, error))
        if len(self.at_fault) > self.most_errors:
            self.at_fault.sort(key=itemgetter(0))
            del self.at_fault[self.most_errors:]

    cdef void keep(self, int64_t row, object error):
        """Keep an error if its row is among the first."""
        if row >= self.errors_below:
            return
        self.errors.append((row, error))
        if len(self.errors) >= 2 * self.most_errors:
            self.shorten()

    def shorten(self):
        self.errors.sort(key=itemgetter(0))
        if len(self.errors) >= self.most_errors:
            del self.errors[self.most_errors:]
            self.errors_below = self.errors[self.most_errors - 1][0]

    def add_failure(self, error, int64_t serial, int64_t records):
        cdef int64_t to_book = records if serial != NOT_BOOKED else 0
        if len(self.failures) >= MAX_FAILURES:
            before = self.failures.pop()
            if before[0].maybe_written or not error.maybe_written:  # a doubt must not get lost
                error = before[0]
            records += before[1]
            serial = max(before[2], serial)
            to_book += before[3]
        self.failures.append((error, records, serial, to_book))

    cdef void wake_if_ended(self):
        if self.waiter is not None and self.unended() == 0 and not self.waiter.done():
            try:
                self.waiter.set_result(None)
            except RuntimeError:
                pass        # the loop is closed: no waiter goes on

    def ended(self, loop):
        """A future that is done once all admitted records have ended."""
        self.waiter = loop.create_future()
        self.wake_if_ended()
        return self.waiter

    def abandon(self, ledger):
        if not self.abandoned:
            self.abandoned = True
            for error, _, serial, to_book in self.failures:
                if to_book:
                    ledger.book(serial, error, to_book)

    def failed_batches(self):
        return [(error, records) for error, records, *_ in self.failures]

    def result(self):
        cdef list merged
        cdef dict offsets = {}
        self.shorten()
        for key in sorted(self.ranges, key=place_in_order):
            merged = []
            for first, last in sorted(self.ranges[key]):
                self.add_range(merged, first, last)
            offsets[key] = merged
        return BatchResult(self.acked, self.failed, offsets, self.told_errors())

    cdef list told_errors(self):
        """The errors for the result: those of the records at fault, and as many others as there is room for."""
        cdef dict by_row = dict(self.at_fault)
        for row, error in self.errors:
            if len(by_row) >= self.most_errors:
                break
            by_row.setdefault(row, error)
        return sorted(by_row.items(), key=itemgetter(0))


def place_in_order(key):
    """The call's own partitions first, then those of other topics."""
    return ("", key) if isinstance(key, int) else key
