"""Keeps Python from making instances of a compiled class, whose parts would be missing.

Only its own module makes them, by ``X.__new__(X)``, which Cython turns into a plain call that does not ask the type.
"""

cdef extern from *:
    """
    static PyObject* aiop_refuse_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
        (void)args;
        (void)kwargs;
        PyErr_Format(PyExc_TypeError, "%.200s is made by a Producer alone, in submit() and its like", type->tp_name);
        return NULL;
    }

    static void aiop_not_by_hand(PyObject* type) {
        PyTypeObject* t = (PyTypeObject*)type;
        t->tp_new = aiop_refuse_new;
        t->tp_vectorcall = NULL;    /* Cython's way around tp_new */
        PyType_Modified(t);
    }
    """
    void aiop_not_by_hand(object type)
