"""The clock of the fast path, in C where the platform clock agrees with ``time.monotonic``."""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    #if defined(__linux__)
    #define AIOP_HAS_CLOCK 1
    static inline int64_t aiop_monotonic_ns(void) {
        struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    #else
    #define AIOP_HAS_CLOCK 0
    static inline int64_t aiop_monotonic_ns(void) { return 0; }
    #endif
    """
    const bint AIOP_HAS_CLOCK
    int64_t aiop_monotonic_ns() noexcept nogil
