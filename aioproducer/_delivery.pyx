"""Delivery: the end of one record; ProduceRequestResult: the end of one batch, shared by its Deliveries.

Theory of operation. A Delivery is just a batch's result and an index: what it reports is computed on demand. No future
exists until a pending Delivery is awaited; then each suspended await has its own future in the result's list (one
cancelled task would cancel a shared future for all), and the batch's end wakes them together.

    Delivery --owner--> ProduceRequestResult --(split)--> pieces: smaller results, found by index

Observed or not. The result keeps one mark per record: LIVE, OBSERVED (awaited, asked, given a callback) or DROPPED (the
Delivery is gone and was never observed). When the batch fails, dropped records are unobserved failures at once; live
ones become unobserved failures when they are dropped, or when a flush that covers the batch ends. The producer's ledger
keeps those failures (`_delivery_ledger`).
"""

import cython

from asyncio import InvalidStateError, _get_running_loop, get_running_loop
from contextvars import Context
from copy import copy
from functools import partial

from cpython.contextvars cimport PyContext_CopyCurrent
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from aioproducer._am_send cimport SEND_NEXT, SEND_RETURN, aiop_set_am_send
from aioproducer._not_by_hand cimport aiop_not_by_hand
from aioproducer._record_metadata cimport new_record_metadata
from aioproducer._running_loop cimport aiop_running_loop
from aioproducer._tally cimport NOT_BOOKED

from aioproducer.errors import WrongLoopError

cdef extern from *:
    """
    /* Whether it is an async def, or a method that is one; -1 if it is no function of Python's. */
    static inline int aiop_is_async(PyObject* fn) {
        if (PyMethod_Check(fn)) fn = PyMethod_GET_FUNCTION(fn);
        if (!PyFunction_Check(fn)) return -1;
        return (((PyCodeObject*)PyFunction_GET_CODE(fn))->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
    }
    """
    int aiop_is_async(object fn) noexcept


@cython.final
@cython.no_gc       # as its batch; see _producer_batch.pyx
cdef class ProduceRequestResult:

    def __dealloc__(self):
        PyMem_Free(self.marks)

    cdef int32_t add_record(self) except -1:
        """Admit one record; its index."""
        cdef int32_t capacity
        cdef unsigned char* marks
        if self.record_count >= self.marks_capacity:
            capacity = 2 * self.marks_capacity if self.marks_capacity else 32
            marks = <unsigned char*>PyMem_Realloc(self.marks, capacity)
            if marks == NULL:
                raise MemoryError()
            self.marks = marks
            self.marks_capacity = capacity
        self.marks[self.record_count] = LIVE
        self.record_count += 1
        return self.record_count - 1

    cdef int assign(self, int32_t index, Tally tally) except -1:
        """Have a call's Tally count a record as its next row, instead of a Delivery."""
        cdef Share share = self.shares
        if share is None or share.tally is not tally:
            share = self.share_of(tally)
        share.add(index, tally.rows)
        self.marks[index] = OBSERVED
        tally.rows += 1
        tally.admitted += 1
        return 0

    cdef Share share_of(self, Tally tally):
        cdef Share share = self.shares if tally.admitted else None     # on its first record there is none to find
        while share is not None and share.tally is not tally:
            share = share.next
        if share is None:
            share = Share.__new__(Share)
            share.tally = tally
            share.next = self.shares
            self.shares = share
        return share

    cdef void observe(self, int32_t index):
        if self.marks != NULL and self.marks[index] == LIVE:
            self.marks[index] = OBSERVED
            self.one_live_less()

    cdef void one_live_less(self):
        """A LIVE mark has changed; after the last one of a failed batch, no flush has to look at it any more."""
        if self.live_failed:
            self.live_failed -= 1
            if self.live_failed == 0:
                self.ledger.unseen.pop(self, None)

    cdef int64_t count_marks(self, unsigned char mark) noexcept:
        cdef int64_t count = 0
        cdef int32_t i
        if self.marks != NULL:
            for i in range(self.record_count):
                count += self.marks[i] == mark
        return count

    cdef object error_of(self, int32_t index):
        if self.record_errors is not None:
            return self.record_errors.get(index, self.error)
        return self.error

    cdef object own_error(self, int32_t index):
        """A copy for the program: a raised error gets a traceback, whose frames hold the Delivery, which holds us."""
        return None if self.error is None else copy(self.error_of(index))

    cpdef complete(self, int64_t base_offset, int64_t log_append_time_ms):
        if self.done:
            return
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        PyMem_Free(self.marks)
        self.marks = NULL
        cdef Share share = self.shares
        self.shares = None
        while share is not None:
            share.tally.acknowledge(share, self.topic, self.partition, base_offset)
            share = share.next
        self.finish()

    def fail(self, error, dict record_errors=None, bint unobserved=True):
        if self.done:
            return
        cdef int64_t dropped
        if unobserved:
            # Count everything before notifying anybody, who may drop more; from here on drop() counts by itself.
            dropped = self.count_marks(DROPPED)
            self.live_failed = self.count_marks(LIVE)
            if self.live_failed:
                self.ledger.unseen[self] = None
            self.error = error
            self.record_errors = record_errors
            if dropped:
                self.ledger.book(self.serial, error, dropped)
        else:
            self.error = error
            self.record_errors = record_errors
            PyMem_Free(self.marks)
            self.marks = NULL
        cdef Share share = self.shares
        self.shares = None
        while share is not None:
            if not share.tally.abandoned:
                share.tally.fail(share, self.serial if unobserved else NOT_BOOKED, error, record_errors)
            elif unobserved:
                self.ledger.book(self.serial, error, share.count)
            share = share.next
        self.finish()

    def give_up_on_live(self):
        cdef int64_t live = self.count_marks(LIVE)
        cdef int32_t i
        if live:
            for i in range(self.record_count):
                if self.marks[i] == LIVE:
                    self.marks[i] = OBSERVED    # reported now: dropping it later adds nothing
            self.ledger.book(self.serial, self.error, live)

    cdef void drop(self, int32_t index):
        """The Delivery of a record goes away unobserved."""
        self.marks[index] = DROPPED
        if self.error is not None:
            self.one_live_less()
            self.ledger.book(self.serial, self.error_of(index), 1)

    def split_into(self, list pieces):
        """Hand all records over to smaller results; `pieces` is a list of (first index, result), ascending.

        If there is no memory for that, nothing has changed.
        """
        cdef ProduceRequestResult piece
        cdef int32_t first, index, i
        cdef Share part
        cdef Share share = self.shares
        while share is not None:
            for first, piece in pieces:
                part = share.cut(first, piece.record_count)
                if part is not None:
                    part.next = piece.shares
                    piece.shares = part
            share = share.next
        if self.callbacks is not None:
            for _, piece in pieces:
                piece.callbacks = {}    # may run the collector, and a finalizer that attaches another
            for index, attached in self.callbacks.items():
                for first, piece in pieces:
                    if index < first + piece.record_count:
                        piece.callbacks[index - first] = attached
                        break
        for first, piece in pieces:
            for i in range(piece.record_count):
                piece.marks[i] = self.marks[first + i]
        self.pieces = pieces
        self.shares = None
        self.callbacks = None
        PyMem_Free(self.marks)
        self.marks = NULL
        self.wake()

    cdef void finish(self):
        self.done = True
        self.wake()
        cdef dict callbacks = self.callbacks
        self.callbacks = None
        if callbacks is not None:
            for index in sorted(callbacks):
                attached = callbacks[index]
                if type(attached) is tuple:
                    self.ledger.called.append(attached)
                else:
                    self.ledger.called.extend(attached)
            self.ledger.call_soon()

    cdef void abandon(self):
        """Nothing will end these records: let go of what waits for them, which may lead back here."""
        self.waiters = None
        self.callbacks = None
        if self.pieces is not None:
            for _, piece in self.pieces:
                (<ProduceRequestResult>piece).abandon()

    def wake(self):
        cdef list waiters = self.waiters
        self.waiters = None
        if waiters is not None:
            for future in waiters:
                if not future.done():
                    try:
                        future.set_result(None)
                    except RuntimeError:
                        pass        # the loop is closed: no waiter goes on


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Delivery:
    """The end of one admitted record: pending, then acknowledged or failed, exactly once and for good.

    Awaitable any number of times, by any number of tasks of the producer's event loop, before or after the end.
    Cancelling a task that awaits it cancels only that wait: an admitted record can't be recalled. Truthy and hashable;
    created only by ``submit`` and ``submit_nowait``.

    A failure counts as observed once the Delivery was awaited, asked for its ``result`` or ``exception``, or given a
    callback. A failure dropped unobserved is reported by ``on_error`` and by ``flush`` or ``close``.
    """

    def __dealloc__(self):
        cdef ProduceRequestResult owner = self.owner
        if owner is None:
            return
        if owner.pieces is not None:
            owner = self.settled()
        if owner.marks != NULL and owner.marks[self.index] == LIVE:
            owner.drop(self.index)

    cdef ProduceRequestResult settled(self):
        """The result this record now belongs to; a split moves it."""
        cdef ProduceRequestResult owner = self.owner
        cdef int32_t first = 0
        while owner.pieces is not None:
            for start, piece in owner.pieces:
                if start > self.index:
                    break
                first = start
                owner = <ProduceRequestResult>piece
            self.index -= first
            self.owner = owner
        return owner

    cdef object outcome(self):
        """The metadata of an ended record; raises its error."""
        cdef ProduceRequestResult owner = self.owner
        if owner.error is not None:
            raise owner.own_error(self.index)
        return new_record_metadata(
            owner.topic,
            owner.partition,
            owner.base_offset + self.index if owner.base_offset >= 0 else -1,
            owner.log_append_time_ms if owner.log_append_time_ms >= 0 else self.timestamp_ms,
            self.key_size,
            self.value_size,
        )

    def done(self):
        """Whether the record has ended. Does not count as observing a failure."""
        return self.settled().done

    def result(self):
        """The record's place in the log, as ``await`` gives it, without waiting.

        Raises:
            asyncio.InvalidStateError: the record has not ended.
            KafkaError: the record failed.
        """
        cdef ProduceRequestResult owner = self.settled()
        if not owner.done:
            raise InvalidStateError("the record has not ended yet; await the Delivery")
        owner.observe(self.index)
        return self.outcome()

    def exception(self):
        """Why the record failed, or None if it was acknowledged.

        Raises:
            asyncio.InvalidStateError: the record has not ended.
        """
        cdef ProduceRequestResult owner = self.settled()
        if not owner.done:
            raise InvalidStateError("the record has not ended yet; await the Delivery")
        owner.observe(self.index)
        return owner.own_error(self.index)

    @property
    def topic(self):
        return self.settled().topic

    @property
    def partition(self):
        return self.settled().partition

    def peek_exception(self):
        cdef ProduceRequestResult owner = self.settled()
        return owner.own_error(self.index)

    def cancel(self, msg=None):
        """Do nothing and return False: an admitted record can't be recalled."""
        return False

    def cancelled(self):
        """Always False: a record ends as acknowledged or failed."""
        return False

    def add_done_callback(self, fn, *, context=None):
        """Call ``fn(delivery)`` from the loop once the record has ended, or soon if it already has.

        As with an asyncio future, it runs in ``context``, or if that is None in a copy of the caller's current context.

        The callbacks of a batch run in admission order, a few hundred per turn of the loop, more if they pile up. An
        exception goes to the loop's exception handler and does not stop the others.

        Raises:
            TypeError: ``fn`` can't be called, or is an async function, which nobody would await.
            WrongLoopError: called outside the producer's loop or thread.
        """
        cdef ProduceRequestResult owner = self.settled()
        if aiop_is_async(fn):
            check_callback(fn)
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"add_done_callback(context=...): a contextvars.Context, not {type(context).__name__}")
        if aiop_running_loop() != <PyObject*>owner.ledger.loop:
            check_loop(owner.ledger.loop)
        owner.observe(self.index)
        attach(self, (fn, self, PyContext_CopyCurrent() if context is None else context))

    def remove_done_callback(self, fn):
        """Remove ``fn`` from the done callbacks; returns how many times it was attached. For ``asyncio.wait``."""
        cdef ProduceRequestResult owner = self.settled()
        cdef dict callbacks = owner.callbacks
        cdef object attached = None if callbacks is None else callbacks.get(self.index)
        if attached is None:
            return 0
        cdef list there = [attached] if type(attached) is tuple else attached
        cdef list left = [each for each in there if (<tuple>each)[0] != fn]
        if left:
            callbacks[self.index] = left
        else:
            callbacks.pop(self.index, None)
        return len(there) - len(left)

    def __await__(self):
        return new_waiter(self)

    def __repr__(self):
        cdef ProduceRequestResult owner = self.settled()
        state = "pending" if not owner.done else "acknowledged" if owner.error is None else "failed"
        return f"<Delivery {owner.topic}-{owner.partition} {state}>"


cdef int check_callback(fn) except -1:
    """Refuse what is not callable, or is async: also the function of a partial, and an object's `__call__`."""
    if not callable(fn):
        raise TypeError(f"add_done_callback(fn): a function of the Delivery, not {type(fn).__name__}")
    while isinstance(fn, partial):
        fn = fn.func
    if aiop_is_async(fn) < 0:
        fn = type(fn).__call__
    if aiop_is_async(fn) > 0:
        raise TypeError(
            f"add_done_callback(fn): {fn.__qualname__} is async, but done callbacks are not awaited: "
            "give a plain function, which may create a task"
        )
    return 0


cdef int check_loop(loop) except -1:
    """Only the loop's own thread may schedule calls on it, and while it runs only code that runs in it."""
    running = _get_running_loop()
    if running is not loop and (running is not None or loop.is_running()):
        raise WrongLoopError(
            "this Delivery belongs to a producer that was started in another event loop; give it callbacks there, from "
            "another thread by loop.call_soon_threadsafe(delivery.add_done_callback, ...)"
        )
    return 0


def count_in(Delivery delivery not None, Tally tally not None):
    cdef ProduceRequestResult owner = delivery.settled()
    cdef Share share
    if not owner.done:
        owner.assign(delivery.index, tally)
        return
    owner.observe(delivery.index)
    share = Share.__new__(Share)
    share.add(delivery.index, tally.rows)
    tally.rows += 1
    tally.admitted += 1
    if owner.error is None:
        tally.acknowledge(share, owner.topic, owner.partition, owner.base_offset)
    else:
        tally.fail(share, owner.serial, owner.error, owner.record_errors)


def watch(Delivery delivery not None, fn):
    attach(delivery, (fn, delivery, None))


cdef attach(Delivery delivery, tuple entry):
    cdef ProduceRequestResult owner = delivery.settled()
    if owner.done:
        owner.ledger.called.append(entry)
        owner.ledger.call_soon()
        return
    cdef dict none_yet
    if owner.callbacks is None:
        none_yet = {}       # may run the collector, and a finalizer that attaches another
        if owner.callbacks is None:
            owner.callbacks = none_yet
    attached = owner.callbacks.setdefault(delivery.index, entry)
    if attached is not entry:
        owner.callbacks[delivery.index] = [attached, entry] if type(attached) is tuple else [*attached, entry]


cdef ProduceRequestResult new_result(str topic, int32_t partition, DeliveryLedger ledger):
    cdef ProduceRequestResult result = ProduceRequestResult.__new__(ProduceRequestResult)
    result.topic = topic
    result.partition = partition
    result.ledger = ledger
    return result


cdef Delivery new_delivery(ProduceRequestResult result, int32_t index, Py_ssize_t key_size, Py_ssize_t value_size,
                           int64_t timestamp_ms):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.owner = result
    delivery.index = index
    delivery.key_size = <int32_t>key_size
    delivery.value_size = <int32_t>value_size
    delivery.timestamp_ms = timestamp_ms
    return delivery


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class DeliveryWaiter:
    """One await of one Delivery: returns at once, or suspends on a future of its own until the batch ends."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        future = self.checked_step()
        if future is None:
            raise StopIteration(self.delivery.outcome())
        return future

    def send(self, value):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        error = value if value is not None else kind if isinstance(kind, BaseException) else kind()
        raise error if traceback is None else error.with_traceback(traceback)

    def close(self):
        pass

    cdef object checked_step(self):
        """`step` for an await in any loop or thread."""
        cdef ProduceRequestResult owner = self.delivery.settled()
        if not owner.done and get_running_loop() is not owner.ledger.loop:
            raise WrongLoopError(
                "this Delivery belongs to a producer that was started in another event loop; await it there"
            )
        return self.step()

    cdef object step(self):
        """The future to suspend on, or None once the record has ended; the running loop is the producer's."""
        cdef ProduceRequestResult owner = self.delivery.settled()
        owner.observe(self.delivery.index)
        if owner.done:
            return None
        future = owner.ledger.loop.create_future()
        if owner.waiters is None:
            owner.waiters = [future]
        else:
            owner.waiters.append(future)
        future._asyncio_future_blocking = True
        return future


cdef DeliveryWaiter new_waiter(Delivery delivery):
    cdef DeliveryWaiter waiter = DeliveryWaiter.__new__(DeliveryWaiter)
    waiter.delivery = delivery
    return waiter


cdef int waiter_am_send(PyObject* self, PyObject* value, PyObject** result) except -1:
    """DeliveryWaiter.send without StopIteration: the interpreter's own protocol for `await`."""
    cdef DeliveryWaiter waiter = <DeliveryWaiter>self
    cdef object answer = waiter.checked_step()
    cdef int kind = SEND_NEXT
    if answer is None:
        answer = waiter.delivery.outcome()
        kind = SEND_RETURN
    Py_INCREF(answer)
    result[0] = <PyObject*>answer
    return kind


aiop_set_am_send(DeliveryWaiter, waiter_am_send)
aiop_not_by_hand(Delivery)
aiop_not_by_hand(DeliveryWaiter)
aiop_not_by_hand(ProduceRequestResult)
