"""The clock of the fast path: nanoseconds from any origin, read in C.

It need not agree with the loop's clock, nor with ``time.monotonic``: a loop may count from its own start (rloop), count
the time that the machine sleeps (uvloop on macOS), or have virtual time. Admission compares the two every millisecond.
It counts sleep where that costs nothing, so that they are compared at the first call after a sleep.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    #if !defined(_WIN32)
    #if defined(__APPLE__)
    #define AIOP_CLOCK CLOCK_MONOTONIC_RAW
    #else
    #define AIOP_CLOCK CLOCK_MONOTONIC
    #endif
    static inline int64_t aiop_clock_ns(void) {
        struct timespec t; clock_gettime(AIOP_CLOCK, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    #elif PY_VERSION_HEX >= 0x030D0000
    static inline int64_t aiop_clock_ns(void) { PyTime_t t; PyTime_PerfCounterRaw(&t); return t; }
    #else   /* time.monotonic ticks only every 16 ms there */
    static inline int64_t aiop_clock_ns(void) { return _PyTime_GetPerfCounter(); }
    #endif
    """
    int64_t aiop_clock_ns() noexcept nogil
