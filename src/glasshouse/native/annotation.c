/* Annotations made fast: the way of a class's instances through `with` while nobody watches them.
   What is not plain goes the way of the slow clear twin (profile/annotation.py): another argument than
   one str, a watcher that listens, a region that began while one did. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#if PY_VERSION_HEX >= 0x030D0000
#define Py_BUILD_CORE 1
#include "internal/pycore_call.h" /* _PyObject_MakeTpCall */
#undef Py_BUILD_CORE
#endif

static PyObject *watchers, *twin_enter, *twin_exit, *none_begun; /* the last: an empty tuple */
static Py_ssize_t name_at, begun_at; /* where instances have their slots */
#define SLOT(self, at) (*(PyObject **)((char *)(self) + (at)))
#define IS_PLAIN(self) (PyList_GET_SIZE(watchers) == 0 && SLOT(self, begun_at) == none_begun)

static PyObject *make(PyObject *cls, PyObject *const *args, size_t given, PyObject *names) {
    PyTypeObject *type = (PyTypeObject *)cls;
    Py_ssize_t count = PyVectorcall_NARGS(given);
    if (count != 1 || names || !PyUnicode_CheckExact(args[0]))
        return _PyObject_MakeTpCall(PyThreadState_Get(), cls, args, count, names);
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return NULL;
    SLOT(self, name_at) = Py_NewRef(args[0]);
    SLOT(self, begun_at) = Py_NewRef(none_begun);
    return self;
}
static PyObject *enter(PyObject *self, PyObject *none) {
    return IS_PLAIN(self) ? Py_NewRef(self) : PyObject_CallOneArg(twin_enter, self);
}
static PyObject *leave(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return IS_PLAIN(self) ? Py_NewRef(Py_None) : PyObject_CallOneArg(twin_exit, self);
}
static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, "Begin."},
    {"__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, "End, whatever was raised."}};

/* quicken(cls, watchers, enter and exit of the twin, slots `name` and `begun`, ()): give a class
   methods of C, and have calls cls(name) make instances without Python. */
static PyObject *quicken(PyObject *self, PyObject *args) {
    PyTypeObject *cls;
    PyMemberDescrObject *name, *begun;
    if (!PyArg_ParseTuple(args, "O!O!OOO!O!O!", &PyType_Type, &cls, &PyList_Type, &watchers, &twin_enter,
                          &twin_exit, &PyMemberDescr_Type, &name, &PyMemberDescr_Type, &begun, &PyTuple_Type,
                          &none_begun)) return NULL;
    Py_INCREF(args); /* for as long as the process runs */
    name_at = name->d_member->offset;
    begun_at = begun->d_member->offset;
    for (int i = 0; i < 2; i++) {
        PyObject *method = PyDescr_NewMethod(cls, &methods[i]);
        int failed = !method || PyObject_SetAttrString((PyObject *)cls, methods[i].ml_name, method);
        Py_XDECREF(method);
        if (failed) return NULL;
    }
    cls->tp_vectorcall = make;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"quicken", quicken, METH_VARARGS, "Have C do what is plain."}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "annotation", NULL, -1, functions};
PyMODINIT_FUNC PyInit_annotation(void) { return PyModule_Create(&module); }
