/* Another user of the frame-evaluation hook (PEP 523), as a debugger might be: it writes down the
names of the functions whose frames it sees, and hands each frame to who had the hook before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define Py_BUILD_CORE 1
#include "internal/pycore_frame.h"
#undef Py_BUILD_CORE

#if PY_VERSION_HEX >= 0x030D0000
#define FRAME_CODE(f) (*(PyCodeObject **)(void *)&(f)->f_executable)
#else
#define FRAME_CODE(f) ((f)->f_code)
#endif

static PyObject *names;
static _PyFrameEvalFunction before, first;

static PyObject *watch(PyThreadState *ts, _PyInterpreterFrame *f, int throwflag) {
    if (names) PyList_Append(names, FRAME_CODE(f)->co_name);
    return before(ts, f, throwflag);
}
static PyObject *install(PyObject *m, PyObject *list) {
    PyInterpreterState *in = PyInterpreterState_Get();
    Py_XSETREF(names, Py_NewRef(list));
    before = _PyInterpreterState_GetEvalFrameFunc(in);
    _PyInterpreterState_SetEvalFrameFunc(in, watch);
    Py_RETURN_NONE;
}
/* remove(polite): put back who was there, or, without asking, the interpreter's own */
static PyObject *take_out(PyObject *m, PyObject *polite) {
    _PyInterpreterState_SetEvalFrameFunc(
        PyInterpreterState_Get(), PyObject_IsTrue(polite) ? before : _PyEval_EvalFrameDefault);
    Py_CLEAR(names);
    Py_RETURN_NONE;
}
/* set_aside() lets the interpreter evaluate its frames itself; put_back() undoes that */
static PyObject *set_aside(PyObject *m, PyObject *none) {
    PyInterpreterState *in = PyInterpreterState_Get();
    first = _PyInterpreterState_GetEvalFrameFunc(in);
    _PyInterpreterState_SetEvalFrameFunc(in, _PyEval_EvalFrameDefault);
    Py_RETURN_NONE;
}
static PyObject *put_back(PyObject *m, PyObject *none) {
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), first);
    Py_RETURN_NONE;
}
static PyObject *current(PyObject *m, PyObject *none) {
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    return PyUnicode_FromString(now == _PyEval_EvalFrameDefault ? "default" : now == watch ? "watch" : "other");
}
static PyMethodDef functions[] = {
    {"install", install, METH_O, "See frames from now on; their names go to a list."},
    {"remove", take_out, METH_O, "See no more frames."},
    {"set_aside", set_aside, METH_NOARGS, "Nobody has the hook from now on."},
    {"put_back", put_back, METH_NOARGS, "Who had the hook has it again."},
    {"current", current, METH_NOARGS, "Who has the hook."}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "other_hook", NULL, -1, functions};
PyMODINIT_FUNC PyInit_other_hook(void) { return PyModule_Create(&module); }
