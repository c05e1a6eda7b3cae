"""Lets a compiled awaitable return its value to the interpreter as cheaply as each version of it allows.

Python 3.11 calls a type's am_send, which returns a value without an exception. From 3.12 on `await` calls tp_iternext,
so that slot is set too: it raises StopIteration without the traceback that Cython would create, and without arguments.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef int aiop_send_result;   /* PySendResult by another name, so that Cython need not know the enum */
    typedef int (*aiop_sendfunc)(PyObject*, PyObject*, PyObject**);

    /* Raise StopIteration(value). The interpreter takes the value and drops the exception, so that making it the usual
       way, with a tuple of arguments that nobody looks at, costs more than the rest. */
    static void aiop_stop(PyObject* value) {
    #if PY_VERSION_HEX >= 0x030C0000
        PyTypeObject* type = (PyTypeObject*)PyExc_StopIteration;
        PyObject* none = PyTuple_New(0);
        PyObject* stop = none == NULL ? NULL : type->tp_new(type, none, NULL);
        Py_XDECREF(none);
        if (stop == NULL) return;
        Py_XSETREF(((PyStopIterationObject*)stop)->value, Py_NewRef(value));
        PyErr_SetRaisedException(stop);
    #else
        PyObject* stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
        if (stop == NULL) return;
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    #endif
    }

    static PyObject* aiop_iternext(PyObject* self) {
        PyObject* result = NULL;
        int kind = (int)Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result);
        if (kind == PYGEN_NEXT) return result;
        if (kind == PYGEN_RETURN) {
            if (result != Py_None) aiop_stop(result);
            Py_DECREF(result);
        }
        return NULL;
    }

    static void aiop_set_am_send(PyObject* type, aiop_sendfunc send) {
        PyTypeObject* t = (PyTypeObject*)type;
        t->tp_as_async->am_send = (sendfunc)(void (*)(void))send;
        t->tp_iternext = aiop_iternext;
        PyType_Modified(t);
    }

    static int aiop_iter_send(PyObject* iter, PyObject* value, PyObject** result) {
        return (int)PyIter_Send(iter, value, result);
    }
    """
    ctypedef int (*aiop_sendfunc)(PyObject*, PyObject*, PyObject**) except -1
    void aiop_set_am_send(object type, aiop_sendfunc send)
    int aiop_iter_send(object iter, object value, PyObject** result) except -1

cdef enum:
    # Values of PySendResult; an error is -1, which a Cython function returns when it raises.
    SEND_RETURN = 0
    SEND_NEXT = 1
