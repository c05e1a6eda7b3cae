"""Lets a compiled awaitable return its value to the interpreter as cheaply as each version of it allows.

Python 3.11 calls a type's am_send, which returns a value without an exception. From 3.12 on `await` calls tp_iternext,
so that slot is set too: it raises StopIteration without the traceback that Cython would create.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef int aiop_send_result;   /* PySendResult by another name, so that Cython need not know the enum */
    typedef int (*aiop_sendfunc)(PyObject*, PyObject*, PyObject**);

    static PyObject* aiop_iternext(PyObject* self) {
        PyObject* result = NULL;
        int kind = (int)Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result);
        if (kind == PYGEN_NEXT) return result;
        if (kind == PYGEN_RETURN) {
            if (PyTuple_Check(result) || PyExceptionInstance_Check(result)) {
                /* As the only argument, or it would be taken for the arguments. */
                PyObject* stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
                if (stop != NULL) {
                    PyErr_SetObject(PyExc_StopIteration, stop);
                    Py_DECREF(stop);
                }
            } else if (result != Py_None) {
                PyErr_SetObject(PyExc_StopIteration, result);
            }
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
