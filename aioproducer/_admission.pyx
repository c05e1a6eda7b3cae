"""Admission: base class of Producer, with the whole fast path of submit in one compiled call.

Theory of operation. When the topic is known, memory is free and no user code has to run, `admit` does it all: checks,
bytes of key and value, partition, append. Otherwise it changes nothing and returns None, and the subclass's slow path
takes over (`_submit_slow`, or `_submit_now_slow`, which may not wait). If serializers are the only user code,
`admit_serialized` calls them first, and leaves what they can't return at once to the slow path.

submit() and send() return a Submission with these stages:

    FRESH --admitted at once--> ADMITTED --submit, turn due--> TURN ----> OVER
      |--slow path--> INNER ------^   '----send----> WAITING ------------^
      '--raised, turn due--> FAULTY -------------------------------------^

The loop's turn. A task whose submits never suspend would monopolize the loop, so submit yields to it when the last turn
was a millisecond or 256 KiB ago. Tasks that do so side by side share the next millisecond, or ten of them would hold
the loop for ten milliseconds. Submit and send also yield before they raise an error about a record, because a program
may skip any number of bad records in a row. Calls refused regardless of their record raise at once.

Which loop. Each call checks thread and running loop (`_running_loop` says at what cost). A producer whose loop has
ended or whose process was forked is in a state that refuses.
"""

import cython

import asyncio
import inspect
import sys
import time
import warnings
from asyncio import _get_running_loop
from types import CoroutineType, GenericAlias

from libc.stdint cimport int32_t, int64_t

from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_CheckExact

from aioproducer._am_send cimport SEND_NEXT, SEND_RETURN, aiop_iter_send, aiop_set_am_send
from aioproducer._accumulator cimport delivery_of
from aioproducer._arguments cimport (
    as_buffer, can_last, checked_partition, checked_timestamp, checked_topic, encodable_headers, is_plain, lasting,
    point_at, too_large,
)
from aioproducer._clock cimport aiop_clock_ns
from aioproducer._delivery cimport new_waiter
from aioproducer._not_by_hand cimport aiop_not_by_hand
from aioproducer._record_batch cimport HEADER_BYTES, RecordView, encode_headers, headers_size, largest_size
from aioproducer._running_loop cimport aiop_running_loop

from aioproducer.errors import RecordTooLargeError, SerializationError, SerializerNotReadyError, WrongLoopError

REFUSED = (RecordTooLargeError, SerializationError)     # errors of the record itself

cdef extern from *:
    """
    /* Of functions that look like Python's, as compiled ones do, inspect asks the code. */
    static void aiop_flag_as_coroutine(PyObject* code) {
        if (PyCode_Check(code)) ((PyCodeObject*)code)->co_flags |= CO_COROUTINE;
    }
    """
    void aiop_flag_as_coroutine(object code)

cdef enum:
    TURN_NS = 1000000
    TURN_BYTES = 262144
    MOST_SHARING = 32           # parts of a turn; smaller ones would be spent on switching between tasks
    HEADERS_BYTES = 512         # headers up to this size, as most are, are encoded on the stack
    RIGHT_AFTER_NS = 20000      # calls at most this far apart: the program does little but submit

cdef enum Stage:
    FRESH
    INNER
    ADMITTED
    TURN
    FAULTY
    WAITING
    OVER


cdef class Admission:
    __class_getitem__ = classmethod(GenericAlias)  # Producer[str, Order], for type checkers

    def _open_admission(self, RecordAccumulator accumulator not None, loop, *, bint direct, Py_ssize_t max_record_bytes,
                        serializers=None, clocks=None):
        self.accumulator = accumulator
        self.loop = loop
        self.direct = direct
        self.serializing = serializers is not None
        self.key_serializer, self.value_serializer = (None, None) if serializers is None else serializers
        self.max_record_bytes = max_record_bytes
        self.thread = PyThread_get_thread_ident()
        self.clocks = clocks
        self.look_again_ns = 0
        self.last_topic = None
        self.last_queues = None
        self.queueing = False
        self.wanted_bytes = 0
        self.sharing = 1
        self.giving = 0
        self.state = ADMITTING

    def _close_admission(self):
        self.state = REFUSING

    @property
    def _is_open(self):
        return self.state == ADMITTING or self.state == OUTSIDE

    @property
    def _is_admitting(self):
        return self.state == ADMITTING

    def _admit_records(self, bint admit):
        if self.state == ADMITTING or self.state == OUTSIDE:
            self.state = ADMITTING if admit else OUTSIDE

    @property
    def _queueing(self):
        return self.queueing

    @_queueing.setter
    def _queueing(self, bint queueing):
        self.queueing = queueing
        self.accumulator.memory_short = queueing

    @property
    def _wanted_bytes(self):
        return self.wanted_bytes

    def _look_again(self):
        """Read topics and clocks again at the next call; a turn of the loop has just begun."""
        self.look_again_ns = 0
        self.last_topic = None
        self.turn_taken()

    def _turn_taken(self):
        self.turn_taken()

    @property
    def _turn_is_due(self):
        self.look()
        return self.turn_due()

    cdef inline bint admits(self) noexcept:
        return self.state == ADMITTING and self.thread == <unsigned long>PyThread_get_thread_ident()

    cdef int look(self) except -1:
        """Check that this is the producer's loop, and read the clocks (those of loop and wall only now and then)."""
        if aiop_running_loop() != <PyObject*>self.loop:
            self.check_loop()
        cdef int64_t before_ns = self.now_ns
        self.now_ns = self.clock_ns()
        if self.now_ns - before_ns < RIGHT_AFTER_NS:
            self.accumulator.busy_ns += self.now_ns - before_ns
        if self.now_ns < self.look_again_ns:
            return 0
        # Batches get the loop's time, by which the sender judges them. Python's wall clock, not the system's: tests
        # freeze or set it (freezegun, time-machine).
        loop_time, wall_time = (self.loop.time, time.time) if self.clocks is None else self.clocks
        self.loop_offset_ns = <int64_t>(1e9 * loop_time()) - self.now_ns
        self.wall_offset_us = <int64_t>(1e6 * wall_time()) - self.now_ns // 1000
        self.look_again_ns = self.now_ns + TURN_NS
        return 0

    cdef inline int64_t clock_ns(self) except? -1:
        return aiop_clock_ns() if self.clocks is None else <int64_t>(1e9 * self.clocks[0]())

    cdef int64_t wall_ms(self) noexcept:
        """The wall time at the latest admission."""
        return (self.now_ns // 1000 + self.wall_offset_us) // 1000

    cdef int check_loop(self) except -1:
        running = _get_running_loop()
        if running is not self.loop:
            raise WrongLoopError(
                "this producer was started in another event loop"
                + (" and no loop is running here" if running is None else "")
                + "; use it from coroutines and callbacks of that loop, or start a separate producer for each loop"
            )
        return 0

    cdef bint turn_due(self) noexcept:
        return (
            self.bytes_since_turn * self.sharing >= TURN_BYTES
            or (self.now_ns - self.turn_ns) * self.sharing >= TURN_NS
        )

    cdef int give_turn(self) except -1:
        """Note that a call yields to the loop. All that yield in one turn share the next, each from when it goes on."""
        if self.giving == 0:
            self.loop.call_soon(self._turn_begins)      # before any of them goes on
        self.giving += 1
        return 0

    def _turn_begins(self):
        self.sharing = min(self.giving, MOST_SHARING)
        self.giving = 0

    cdef int turn_taken(self) except -1:
        self.bytes_since_turn = 0
        self.turn_ns = self.clock_ns()      # not now_ns, which is from before the loop's turn
        return 0

    cdef Delivery admit(self, topic, value, key, partition, headers, timestamp_ms, bint awaited):
        """Append a record whose key and value need no work; None if it has to wait for something."""
        cdef RecordView record
        self.look()
        cdef ProducerBatch batch = self.take(topic, value, key, partition, headers, timestamp_ms, awaited, &record)
        return None if batch is None else delivery_of(batch, &record)

    cdef Delivery admit_serialized(self, topic, value, key, partition, headers, timestamp_ms, bint awaited):
        """`admit` behind serializers that return bytes at once; None leaves the whole record to the slow path.

        No user code runs for a record that would have to wait anyway; a record that finds no memory only afterwards is
        serialized again.
        """
        cdef TopicQueues queues
        self.look()
        if self.queueing or not PyUnicode_CheckExact(topic):
            return None
        if topic is not self.last_topic:
            queues = self.accumulator.find_topic(topic)
            if queues is None or queues.partition_count == 0:
                return None
        if key is not None and self.key_serializer is not None:
            key = self.key_serializer(topic, headers, key)
            if not is_plain(key):
                return self.not_at_once(key)
        if value is not None and self.value_serializer is not None:
            value = self.value_serializer(topic, headers, value)
            if not is_plain(value):
                return self.not_at_once(value)
        return self.admit(topic, value, key, partition, headers, timestamp_ms, awaited)

    cdef Delivery not_at_once(self, result):
        """A serializer's result needs the slow path, which gets all records from now on."""
        if isinstance(result, CoroutineType):
            result.close()      # never started; the slow path asks for another
        self.serializing = False
        return None

    cdef ProducerBatch take(self, topic, value, key, partition, headers, timestamp_ms, bint awaited,
                            RecordView* record):
        """`admit` after the clocks were read; returns the batch that took the record."""
        cdef unsigned char encoded[HEADERS_BYTES]
        cdef ProducerBatch batch
        cdef TopicQueues queues     # not self.last_queues: what follows may run user code, which may send too
        cdef list pairs
        cdef int64_t chosen = -1
        if topic is not self.last_topic or topic is None:       # None also marks that there is no last topic
            if not PyUnicode_CheckExact(topic):
                topic = checked_topic(topic)
            queues = self.accumulator.topics.find(<str>topic)
            if queues is None:
                return None
            self.last_topic = <str>topic
            self.last_queues = queues
        else:
            queues = self.last_queues
        if queues.partition_count == 0:
            return None
        if partition is not None:
            chosen = checked_partition(partition, topic)
            if chosen >= queues.partition_count:
                return None
        if not is_plain(key):
            key = as_buffer(key, "key", topic, self.max_record_bytes)
        if not is_plain(value):
            value = as_buffer(value, "value", topic, self.max_record_bytes)
        point_at(key, &record.key, &record.key_size, "key", topic)
        point_at(value, &record.value, &record.value_size, "value", topic)
        record.timestamp_ms = (
            self.wall_ms() if timestamp_ms is None
            else checked_timestamp(timestamp_ms, topic)
        )
        record.headers = NULL
        record.headers_size = 1
        if headers is None:
            return self.place(topic, queues, <int32_t>chosen, record, None, awaited)
        record.headers_size = encode_headers(headers, encoded, HEADERS_BYTES)
        if record.headers_size == 0:
            pairs = encodable_headers(headers, topic, self.max_record_bytes)
            record.headers_size = 1 if pairs is None else headers_size(pairs)
            return self.place(topic, queues, <int32_t>chosen, record, pairs, awaited)
        record.headers = encoded
        batch = self.place(topic, queues, <int32_t>chosen, record, None, awaited)
        record.headers = NULL       # the encoded headers live no longer than this call
        return batch

    cdef ProducerBatch place(self, str topic, TopicQueues queues, int32_t partition, RecordView* record, list pairs,
                             bint awaited):
        """Append a checked record if its size is allowed, nobody waits for memory, and the producer still admits."""
        cdef Py_ssize_t size = HEADER_BYTES + largest_size(record)
        if size > self.max_record_bytes:
            raise too_large(topic, size, self.max_record_bytes)
        # User code that ran during this call may have closed the producer or ended its transaction.
        if self.queueing or self.state != ADMITTING:
            self.wanted_bytes = size
            return None
        cdef ProducerBatch batch = self.accumulator.append_record(
            queues, partition, record, pairs, (self.now_ns + self.loop_offset_ns) // 1000000, awaited
        )
        if batch is not None:
            self.bytes_since_turn += size
        else:
            self.wanted_bytes = size
        return batch

    def _admit(self, topic, value, key, partition, headers, timestamp_ms, bint awaited, bint queued=False):
        """`admit` for the slow path; `queued`: the caller is the first in the queue for memory."""
        cdef bint queueing = self.queueing
        if queued:
            self.queueing = False
        try:
            return self.admit(topic, value, key, partition, headers, timestamp_ms, awaited)
        finally:
            if queued:
                self.queueing = queueing

    def _admit_serialized(self, topic, value, key, partition, headers, timestamp_ms):
        if not self.serializing or not self.admits():
            return None
        if headers is not None and not isinstance(headers, (list, tuple, dict)):
            return None     # an iterator, which the slow path could not read again
        try:
            return self.admit_serialized(topic, value, key, partition, headers, timestamp_ms, False)
        except SerializerNotReadyError:
            return None

    def submit_nowait(self, topic, value=None, *, key=None, partition=None, headers=None, timestamp_ms=None):
        """Put one record in the buffer now, or raise; returns its Delivery.

        A plain call that waits for nothing. The record belongs to the producer, not to the task that submitted it. The
        full-speed pattern is to call it until BufferExhaustedError, then ``await ready()``.

        Args:
            topic, value, key, partition, headers, timestamp_ms: as for ``send``.
        Raises:
            BufferExhaustedError: there is no memory, or other callers are waiting for it; not admitted.
            MetadataUnavailableError: the topic, or this partition of it, is not known yet; not admitted.
            RecordTooLargeError, SerializationError: as for ``submit``.
            TransactionStateError, TransactionAbortedError: as for ``submit``.
            NotStartedError, ProducerClosedError, WrongLoopError: as for ``submit``.
        """
        if not self.admits():
            self._refuse()
        cdef Delivery delivery
        try:
            if not can_last(headers):
                headers = lasting(headers, topic, self.max_record_bytes)
            if self.direct:
                delivery = self.admit(topic, value, key, partition, headers, timestamp_ms, False)
                if delivery is not None:
                    return delivery
            elif self.serializing:
                delivery = self.admit_serialized(topic, value, key, partition, headers, timestamp_ms, False)
                if delivery is not None:
                    return delivery
        except REFUSED as error:
            error._is_about(topic)
            raise
        return self._submit_now_slow(topic, value, key, partition, headers, timestamp_ms)

    @cython.binding(True)
    def submit(self, topic, value=None, *, key=None, partition=None, headers=None, timestamp_ms=None):
        """Put one record in the buffer and return its Delivery.

        Waits for metadata and memory, together at most ``max_block_ms``, not counting the time of the user's serializer
        and partitioner; never for an acknowledgement. Callers that wait for memory are served in order of arrival.
        Records of one task are appended in call order, and copied before this returns. A loop of submits gives the
        event loop a turn at least every millisecond or 256 KiB.

        Args:
            topic, value, key, partition, headers, timestamp_ms: as for ``send``.
        Raises:
            BufferExhaustedError: memory stayed full; the record was not admitted.
            MetadataTimeoutError: the topic, or this partition of it, did not become known; not admitted.
            InvalidTopicError, TopicAuthorizationFailedError: the name is invalid, or the user may not see the topic;
                not admitted.
            RecordTooLargeError: above ``max_request_size`` or ``buffer_memory``; not admitted.
            SerializationError: an argument has a wrong type or value, or a serializer raised; not admitted.
            AuthenticationError: the topic is not known, and no broker accepts this client; not admitted.
            TransactionStateError: with a ``transactional_id``, outside of a transaction; not admitted.
            TransactionAbortedError: the open transaction can only be aborted; not admitted.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
        Source: KafkaProducer.send; KIP-91 (timeouts).
        """
        return new_submission(self, topic, value, key, partition, headers, timestamp_ms, False)

    @cython.binding(True)
    def send(self, topic, value=None, *, key=None, partition=None, headers=None, timestamp_ms=None):
        """Send one record and wait until the brokers have acknowledged it; returns its place in the log.

        Waits for metadata and memory as ``submit`` does, then for the acknowledgement. Only ``send`` cuts linger short:
        its batch is ready at the end of the loop's turn if its broker owes no answer, else when that answer arrives, so
        many concurrent sends still make few batches. If cancelled before the record is in the buffer, it is not sent;
        after that, delivery goes on.

        Args:
            topic: created by the broker if it does not exist, ``auto.create.topics.enable`` is set there, and
                ``allow_auto_create_topics`` here.
            value, key: bytes-like, str (UTF-8), None, or what the configured serializer takes.
            partition: None chooses by murmur2 of the key, or without a key one partition after the other.
            headers: pairs of (str, bytes | None), or a mapping; order and repeated names are kept.
            timestamp_ms: milliseconds since the epoch; None means the time of its admission.
        Raises:
            BufferExhaustedError, MetadataTimeoutError, and all others that ``submit`` raises: not in the log.
            DeliveryTimeoutError: not acknowledged within ``delivery_timeout_ms``; ``maybe_written`` says whether it
                may still be in the log.
            KafkaError: the record failed for another reason; ``maybe_written`` as above. In a transaction it is
                ``abortable`` or ``fatal``.
        Source: KafkaProducer.send; KIP-91 (timeouts).
        """
        return new_submission(self, topic, value, key, partition, headers, timestamp_ms, True)


def mark_as_coroutine_function(function):
    """Frameworks and mocks check this before they await the result: starlette calls anything else in a thread."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        aiop_flag_as_coroutine(function.__code__)
    if hasattr(asyncio.coroutines, "_is_coroutine"):    # asyncio.iscoroutinefunction looks for it
        function._is_coroutine = asyncio.coroutines._is_coroutine


mark_as_coroutine_function(Admission.submit)
mark_as_coroutine_function(Admission.send)


cdef Submission new_submission(Admission producer, topic, value, key, partition, headers, timestamp_ms, bint is_send):
    cdef Submission submission = Submission.__new__(Submission)
    submission.producer = producer
    submission.topic = topic
    submission.value = value
    submission.key = key
    submission.partition = partition
    submission.headers = headers
    submission.timestamp_ms = timestamp_ms
    submission.is_send = is_send
    submission.stage = FRESH
    return submission


@cython.final
@cython.freelist(256)
cdef class Submission:

    def __dealloc__(self):
        if self.stage == FRESH and self.producer is not None:
            warnings.warn(f"coroutine '{self.__qualname__}' was never awaited", RuntimeWarning, stacklevel=2)

    @property
    def __name__(self):
        return "send" if self.is_send else "submit"

    @property
    def __qualname__(self):
        return "Producer.send" if self.is_send else "Producer.submit"

    # What inspect asks of a coroutine: its class, and then its state. Without cr_await, as there are no frames to walk.

    @property
    def __class__(self):
        return CoroutineType

    @property
    def cr_running(self):
        return False

    @property
    def cr_suspended(self):
        return self.stage != FRESH and self.stage != OVER

    @property
    def cr_frame(self):
        return None

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef void* result = NULL
        cdef int kind = self.advance(value, &result)
        cdef object answer = <object>result
        release_extra(answer)
        if kind == SEND_RETURN:
            raise StopIteration(answer)
        return answer

    def throw(self, kind, value=None, traceback=None):
        error = value if value is not None else kind if isinstance(kind, BaseException) else kind()
        if traceback is not None:
            error = error.with_traceback(traceback)
        if self.stage != INNER:
            self.end()
            raise error
        try:
            return self.inner.throw(error)
        except StopIteration as stop:
            # The slow path swallowed a late cancellation: its record is admitted, so continue from there.
            self.inner = None
            self.delivery = stop.value
            self.stage = ADMITTED
            return self.send(None)
        except BaseException:
            self.end()
            raise

    def close(self):
        if self.stage == INNER:
            self.inner.close()
        self.end()

    cdef void end(self):
        self.stage = OVER
        self.inner = None
        self.waiter = None
        self.error = None
        self.drop_arguments()

    cdef void drop_arguments(self):
        self.topic = self.value = self.key = self.partition = self.headers = self.timestamp_ms = None

    cdef int advance(self, sent, void** result) except -1:
        """One step; gives a new reference: SEND_NEXT with the object to suspend on, or SEND_RETURN with the value."""
        if self.stage == FRESH:
            self.stage = OVER       # in case what follows raises
            if not self.producer.admits():
                self.producer._refuse()
            try:
                return self.begin(sent, result)
            except WrongLoopError:
                raise
            except Exception as error:
                return self.fault(error, result)
        if self.stage == INNER:
            return self.run_inner(sent, result)
        return self.after_admission(result)

    cdef int begin(self, sent, void** result) except -1:
        """The first step, if the producer admits records."""
        cdef Admission producer = self.producer
        if not can_last(self.headers):
            self.headers = lasting(self.headers, self.topic, producer.max_record_bytes)
        if producer.direct:
            self.delivery = producer.admit(self.topic, self.value, self.key, self.partition, self.headers,
                                           self.timestamp_ms, self.is_send)
        elif producer.serializing:
            try:
                self.delivery = producer.admit_serialized(self.topic, self.value, self.key, self.partition,
                                                          self.headers, self.timestamp_ms, self.is_send)
            except SerializerNotReadyError:
                pass        # the slow path waits for it
        if self.delivery is not None:
            self.stage = ADMITTED
        else:
            self.inner = producer._submit_slow(self.topic, self.value, self.key, self.partition, self.headers,
                                               self.timestamp_ms, self.is_send)
            self.stage = INNER
        self.drop_arguments()
        if self.stage == INNER:
            return self.run_inner(sent, result)
        return self.after_admission(result)

    cdef int fault(self, error, void** result) except -1:
        """Raise the record's error, after yielding to the loop if a turn is due."""
        if isinstance(error, REFUSED):
            error._is_about(self.topic)
        self.end()
        if isinstance(error, StopIteration):    # the caller would take it for a normal end, or wait forever
            stopped, error = error, RuntimeError("coroutine raised StopIteration")
            error.__cause__ = stopped
        self.producer.look()
        if not self.producer.turn_due():
            raise error
        self.producer.give_turn()
        self.error = error
        self.stage = FAULTY
        Py_INCREF(None)
        result[0] = <void*>None
        return SEND_NEXT

    cdef int run_inner(self, sent, void** result) except -1:
        cdef int kind
        try:
            kind = aiop_iter_send(self.inner, sent, <PyObject**>result)
        except BaseException:
            self.end()
            raise
        if kind == SEND_NEXT:
            return SEND_NEXT
        self.delivery = <Delivery><object>result[0]
        release_extra(self.delivery)
        self.inner = None
        self.stage = ADMITTED
        return self.after_admission(result)

    cdef int after_admission(self, void** result) except -1:
        cdef object answer = None
        if self.stage == ADMITTED and self.is_send:
            self.waiter = new_waiter(self.delivery)
            self.stage = WAITING
        if self.stage == ADMITTED and self.producer.turn_due():
            self.producer.give_turn()
            self.stage = TURN
            Py_INCREF(None)
            result[0] = <void*>None
            return SEND_NEXT
        if self.stage == TURN:
            self.producer.turn_taken()
        elif self.stage == FAULTY:
            self.producer.turn_taken()
            error = self.error
            self.end()
            raise error
        elif self.stage == WAITING:
            answer = self.waiter.step()
            if answer is not None:
                Py_INCREF(answer)
                result[0] = <void*>answer
                return SEND_NEXT
            self.stage = OVER
            answer = self.delivery.outcome()
            Py_INCREF(answer)
            result[0] = <void*>answer
            return SEND_RETURN
        elif self.stage == OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self.stage = OVER
        answer = self.delivery
        Py_INCREF(answer)
        result[0] = <void*>answer
        return SEND_RETURN


cdef void release_extra(object answer):
    """Drop the reference that advance() handed over; `answer` holds its own."""
    Py_DECREF(answer)


cdef int submission_am_send(PyObject* self, PyObject* value, PyObject** result) except -1:
    """Submission.send without StopIteration: the interpreter's own protocol for `await`."""
    return (<Submission>self).advance(<object>value, <void**>result)


aiop_set_am_send(Submission, submission_am_send)
aiop_not_by_hand(Submission)
