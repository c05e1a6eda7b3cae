"""Which event loop runs in this thread, without a system call.

On Python 3.11 ``asyncio.get_running_loop`` makes a getpid system call to notice a fork, which costs more than a record.
There the loop is read from where asyncio stores it. From 3.12 on asyncio makes no system call, so it is asked, by its
own compiled function.

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

    static PyObject* aiop_loop_in(PyObject* of_thread) {
        static PyObject* name = NULL;
        if (name == NULL) name = PyUnicode_InternFromString("__asyncio_running_event_loop__");
        PyObject* holder = name == NULL ? NULL : PyDict_GetItemWithError(of_thread, name);
        if (holder == NULL) {
            PyErr_Clear();
            return NULL;
        }
        PyTypeObject* type = Py_TYPE(holder);
        if (strcmp(type->tp_name, "_RunningLoopHolder") || type->tp_basicsize < (Py_ssize_t)sizeof(aiop_holder))
            return NULL;
        return ((aiop_holder*)holder)->loop;
    }

    /* A dict has another version after each change, and no two dicts ever have the same. */
    static inline PyObject* aiop_running_loop(void) {
        static uint64_t version = 0;
        static PyObject* loop = NULL;
        PyObject* of_thread = PyThreadState_GetDict();
        if (of_thread == NULL) return NULL;
        if (((PyDictObject*)of_thread)->ma_version_tag != version) {
            loop = aiop_loop_in(of_thread);
            version = ((PyDictObject*)of_thread)->ma_version_tag;
        }
        return loop;
    }
    #else
    static inline PyObject* aiop_running_loop(void) {
        static PyObject* ask = NULL;
        if (ask == NULL) {
            PyObject* module = PyImport_ImportModule("asyncio");
            if (module != NULL) ask = PyObject_GetAttrString(module, "_get_running_loop");
            Py_XDECREF(module);
        }
        PyObject* loop = ask == NULL ? NULL : PyObject_CallNoArgs(ask);
        if (loop == NULL) PyErr_Clear();
        Py_XDECREF(loop);       /* whoever runs in it has a reference */
        return loop;
    }
    #endif
    """
    PyObject* aiop_running_loop() noexcept      # borrowed; NULL: not found, ask asyncio
