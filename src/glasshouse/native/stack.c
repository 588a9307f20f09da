/* The Python stack of the calling thread, as a key: where each function that is running stands.

   Frames are read as the interpreter keeps them: asking for frame objects, as Python code does, makes
   one for each function, and costs ten times as much. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "interpreter_frame.h"

enum { MOST = 64 };

/* key(skip): the bytes of (code object, instruction) of each frame, the innermost first, without the
   first `skip`, at most 64. Code objects are named by their addresses: whoever keeps a key must keep
   them too. */
static PyObject *key(PyObject *self, PyObject *skip) {
    (void)self;
    long left = PyLong_AsLong(skip);
    if (left == -1 && PyErr_Occurred()) return NULL;
    int64_t found[2 * MOST];
    Py_ssize_t n = 0;
    for (_PyInterpreterFrame *f = CURRENT_FRAME(PyThreadState_Get()); f && n < 2 * MOST; f = f->previous) {
        if (_PyFrame_IsIncomplete(f) || left-- > 0) continue;
        found[n++] = (int64_t)(intptr_t)frame_code(f);
        found[n++] = (int64_t)(_PyInterpreterFrame_LASTI(f) * (int)sizeof(_Py_CODEUNIT));
    }
    return PyBytes_FromStringAndSize((char *)found, n * (Py_ssize_t)sizeof *found);
}

static PyMethodDef functions[] = {{"key", key, METH_O, "The stack as bytes, without the innermost frames."}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "stack", NULL, -1, functions};

PyMODINIT_FUNC PyInit_stack(void) { return PyModule_Create(&module); }
