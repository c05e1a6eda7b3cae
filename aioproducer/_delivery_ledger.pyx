"""DeliveryLedger: what the Deliveries of one producer have in common: unobserved failures, and done callbacks.

Theory of operation. A result books the records of its batch that failed and were not observed. They wait here in two
places: for the report to `on_error` and the log, which takes them once, and for the flushes that may raise them. Failed
results whose Deliveries the program still holds are registered as unseen, and asked when a flush that covers them ends.

Which flush raises it. Flushes that overlap and cover a failure all raise it; later ones do not. The ledger stamps each
failure with the time of the first flush that raised it, on a clock that ticks at each end of a flush. A flush raises
failures that are unstamped or were stamped after it started.

Callbacks. Those of all ended batches wait in one queue, which keeps them in the order in which the batches ended.
"""

import cython

from collections import deque

from libc.math cimport INFINITY

from cpython.contextvars cimport PyContext_Copy, PyContext_CopyCurrent

from aioproducer._not_by_hand cimport aiop_not_by_hand

cdef enum:
    CALLBACKS_A_TURN = 256      # at least,
    CALLBACKS_BACKLOG = 8       # and at least this fraction (1/8) of those waiting, which bounds the backlog
    MAX_ENTRIES = 1000      # failures not yet raised by a flush; records of further ones join the last


@cython.final
cdef class Failure:
    """Records of one batch that failed unobserved."""
    cdef object error
    cdef int64_t serial
    cdef int64_t records
    cdef int64_t raised_at      # ledger clock; 0 until a flush raised it


@cython.final
cdef class DeliveryLedger:

    def __cinit__(self):
        self.entries = []
        self.fresh = []
        self.unseen = {}
        self.running = []
        self.called = deque()
        self.deadlines = {}
        self.context = PyContext_CopyCurrent()

    cdef void call_soon(self):
        """Have the loop call the waiting callbacks, unless it will anyway."""
        if self.is_calling or not self.called:
            return
        try:
            self.loop.call_soon(run_callbacks, self, context=PyContext_Copy(self.context))
            self.is_calling = True
        except RuntimeError:
            self.called.clear()     # the loop is closed: nobody is left to notify

    @property
    def callbacks_waiting(self):
        return len(self.called)

    cpdef void book(self, int64_t serial, object error, int64_t records):
        cdef Failure last
        self.unobserved_count += records
        last = <Failure>self.entries[len(self.entries) - 1] if self.entries else None
        if last is not None and last.raised_at == 0 and (last.error is error or len(self.entries) >= MAX_ENTRIES):
            last.records += records     # records of a batch are dropped one by one: one entry for all
            last.serial = max(last.serial, serial)
        else:
            last = Failure.__new__(Failure)
            last.error = error
            last.serial = serial
            last.records = records
            self.entries.append(last)
        self.fresh.append((error, records))
        if len(self.fresh) == 1 and self.on_failure is not None:
            self.on_failure()

    def take_fresh(self):
        cdef list fresh = self.fresh
        self.fresh = []
        return fresh

    def start_flush(self):
        self.running.append(self.clock)
        return self.clock

    def end_flush(self, int64_t token, int64_t last_serial, bint report=True):
        cdef Failure entry
        cdef dict raised = {}   # by error: one batch may have one entry for dropped records, one for the rest
        cdef list kept = []
        self.clock += 1
        self.running.remove(token)
        if report:
            # Reporting a failure may run code that drops Deliveries of another one.
            for result in [unseen for unseen in self.unseen if unseen.serial <= last_serial]:
                self.unseen.pop(result, None)
                result.give_up_on_live()
            for entry in self.entries:
                if entry.serial <= last_serial and (entry.raised_at == 0 or entry.raised_at > token):
                    raised[id(entry.error)] = (entry.error, raised.get(id(entry.error), (None, 0))[1] + entry.records)
                    if entry.raised_at == 0:
                        entry.raised_at = self.clock
        oldest = self.running[0] if self.running else self.clock
        for entry in self.entries:
            if entry.raised_at == 0 or entry.raised_at > oldest:
                kept.append(entry)
        self.entries = kept
        return list(raised.values())


def run_callbacks(DeliveryLedger ledger not None):
    """Call the next done callbacks in order: a few hundred per turn of the loop, more if they pile up.

    Their records have returned their pool memory, so without the growing share a busy program with few loop turns could
    fill the process's memory with ended records that wait for their callbacks. A turn ends early when the deadline of
    a waiter for callbacks passes.
    """
    cdef object called = ledger.called
    cdef Py_ssize_t left = max(CALLBACKS_A_TURN, len(called) // CALLBACKS_BACKLOG)
    cdef double until = min([deadline.at for deadline in ledger.deadlines.values()]) if ledger.deadlines else INFINITY
    ledger.is_calling = False
    if len(called) > left:
        ledger.call_soon()
    while called and left > 0:
        left -= 1
        fn, delivery, context = called.popleft()
        ledger.callbacks_called += 1
        try:
            if context is None:
                fn(delivery)
            else:
                context.run(fn, delivery)
        except (SystemExit, KeyboardInterrupt):
            ledger.call_soon()
            raise
        except BaseException as error:
            ledger.loop.call_exception_handler(
                {"message": "a done callback of a Delivery raised", "exception": error, "handle": fn}
            )
        if until != INFINITY and ledger.loop.time() >= until:
            ledger.call_soon()
            break


aiop_not_by_hand(Failure)
