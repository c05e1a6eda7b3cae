"""Keeps Python code from creating incomplete instances of a compiled class.

Only its own module creates them, by ``X.__new__(X)``, which Cython turns into a plain call that bypasses the slot.
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
