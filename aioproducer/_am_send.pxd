"""Lets a compiled awaitable return its value to the interpreter without raising StopIteration."""

from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef int aiop_send_result;   /* PySendResult by another name, so that Cython need not know the enum */
    typedef int (*aiop_sendfunc)(PyObject*, PyObject*, PyObject**);

    static void aiop_set_am_send(PyObject* type, aiop_sendfunc send) {
        PyTypeObject* t = (PyTypeObject*)type;
        if (t->tp_as_async != NULL) {
            t->tp_as_async->am_send = (sendfunc)(void (*)(void))send;
            PyType_Modified(t);
        }
    }

    static int aiop_iter_send(PyObject* iter, PyObject* value, PyObject** result) {
        return (int)PyIter_Send(iter, value, result);
    }
    """
    ctypedef int (*aiop_sendfunc)(PyObject*, PyObject*, PyObject**) except -1
    void aiop_set_am_send(object type, aiop_sendfunc send)
    int aiop_iter_send(object iter, object value, PyObject** result) except -1

cdef enum:
    # Values of PySendResult; an error is -1, which is what a Cython function returns when it raises.
    SEND_RETURN = 0
    SEND_NEXT = 1
