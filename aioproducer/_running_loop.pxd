"""Which event loop runs in this thread, as far as that can be told without a system call.

On Python 3.11 ``asyncio.get_running_loop`` asks the system for the process id, to notice a fork, which costs more than
a record. Here the loop is taken from where asyncio keeps it there. From 3.12 on it asks the system for nothing, so
asking asyncio will do.

Source: PyRunningLoopHolder in CPython 3.11's _asynciomodule.c.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    #include <string.h>
    typedef struct {
        PyObject_HEAD
        PyObject* loop;     /* None between two runs; the process id follows */
    } aiop_holder;

    static PyObject* aiop_running_loop(void) {
        static PyObject* name = NULL;
        static PyTypeObject* known = NULL;
        if (name == NULL) name = PyUnicode_InternFromString("__asyncio_running_event_loop__");
        PyObject* of_thread = PyThreadState_GetDict();
        PyObject* holder = name == NULL || of_thread == NULL ? NULL : PyDict_GetItemWithError(of_thread, name);
        if (holder == NULL) {
            PyErr_Clear();
            return NULL;
        }
        if (Py_TYPE(holder) != known) {
            PyTypeObject* type = Py_TYPE(holder);
            if (strcmp(type->tp_name, "_RunningLoopHolder") || type->tp_basicsize < (Py_ssize_t)sizeof(aiop_holder))
                return NULL;
            known = type;
        }
        return ((aiop_holder*)holder)->loop;
    }
    #else
    #define aiop_running_loop() NULL
    #endif
    """
    PyObject* aiop_running_loop() noexcept      # borrowed; NULL: ask asyncio
