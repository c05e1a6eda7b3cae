"""RecordFeed: admits the records of one send_many call, slice by slice.

Theory of operation. `run` appends records from the caller's iterable until that is empty, the loop is due a turn, or a
record has to wait; the shell does the waiting and calls it again. A record that can't go yet is held and stays next
until it is admitted or refused. An invalid record is refused, and the feed goes on. No Delivery is made: the batches
tell the Tally how their records ended.
"""

import cython

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from aioproducer._arguments cimport can_last, check_partition, lasting
from aioproducer._producer_batch cimport ProducerBatch
from aioproducer._record_batch cimport RecordView

from aioproducer.errors import KafkaError, SerializationError
from aioproducer.records import Record

cdef extern from "Python.h":
    PyObject* PyIter_Next(object iterator) except? NULL

cdef enum:
    STRIDE = 16     # records of a list between two clock reads

FEED_DONE = FED
FEED_TURN = TURN_DUE
FEED_BLOCKED = BLOCKED
FEED_CLOSED = CLOSED
FEED_BROKEN = BROKEN
FEED_EMPTY = EMPTY


@cython.final
cdef class RecordFeed:

    def __cinit__(self, Admission producer not None, Tally tally not None, records=None):
        self.producer = producer
        self.tally = tally
        self.topic = tally.topic
        self.stride = STRIDE if isinstance(records, (list, tuple)) else 1   # any other iterator may be slow
        self.iterator = None if records is None else iter(records)

    def offer(self, record):
        self.held = record
        self.holds = True
        return self.run()

    def run(self):
        cdef Admission producer = self.producer
        cdef int until_look = 0
        while True:
            if not self.holds:
                if self.iterator is None:
                    return FED
                try:
                    if not self.fetch():
                        return FED
                except Exception as error:
                    self.error = error
                    return BROKEN
            if not producer.admits():
                return CLOSED
            if until_look == 0:
                producer.look()
                until_look = self.stride
            until_look -= 1
            if producer.turn_due():
                return TURN_DUE
            if not self.admit_held():
                return BLOCKED if producer.admits() else CLOSED     # the record's own code may have closed it

    cdef bint fetch(self) except -1:
        """Hold the caller's next record; False if there is none."""
        cdef PyObject* item = PyIter_Next(self.iterator)
        if item == NULL:
            return False
        self.held = <object>item
        Py_DECREF(self.held)
        self.holds = True
        return True

    cdef bint admit_held(self) except -1:
        """Append the held record, or refuse it; False if it has to wait."""
        cdef RecordView record
        cdef ProducerBatch batch
        cdef object item = self.held
        cdef object topic = self.topic
        try:
            if PyTuple_CheckExact(item) and PyTuple_GET_SIZE(item) == 2:
                batch = self.producer.take(topic, <object>PyTuple_GET_ITEM(item, 1), <object>PyTuple_GET_ITEM(item, 0),
                                           None, None, None, False, &record)
            elif isinstance(item, Record):
                if item.topic is not None:
                    topic = item.topic
                if self.headers is None:
                    self.headers = item.headers
                    if not can_last(self.headers):
                        self.headers = lasting(self.headers, topic, self.producer.max_record_bytes)
                batch = self.producer.take(topic, item.value, item.key, item.partition, self.headers,
                                           item.timestamp_ms, False, &record)
            else:
                batch = self.producer.take(topic, item, None, None, None, None, False, &record)
        except Exception as error:
            self.refuse(error)
            return True
        if batch is None:
            return False
        batch.result.assign(record.index, self.tally)
        self.holds = False
        self.headers = None
        return True

    def refuse(self, error):
        if not isinstance(error, KafkaError):
            cause = error
            error = SerializationError(f"a record for topic {self.topic!r} can't be read: {type(cause).__name__}")
            error.__cause__ = cause
        topic = self.held.topic if isinstance(self.held, Record) else None
        self.tally.refuse(error, self.topic if topic is None else topic)
        self.held = None
        self.holds = False
        self.headers = None

    @property
    def holds_record(self):
        return self.holds

    @property
    def wanted(self):
        cdef object item = self.held
        if isinstance(item, Record):
            topic = self.topic if item.topic is None else str.__str__(item.topic)
            return topic, check_partition(item.partition, topic)    # not checked yet if the topic is unknown
        return self.topic, None

    def try_now(self):
        cdef bint queueing = self.producer.queueing
        self.producer.queueing = False
        try:
            self.producer.look()
            return self.admit_held()
        finally:
            self.producer.queueing = queueing
