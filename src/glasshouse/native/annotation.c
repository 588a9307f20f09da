/* Annotations made fast: the way of a class's instances through `with` while nobody is told of them.

   quicken(cls, watchers) puts `__enter__` and `__exit__` of C into a class whose base is the slow clear
   twin (profile/annotation.py) with slots `name` and `begun`, and has calls cls(name) make instances
   without Python. Whatever is not plain goes the way of the twin: another argument than one str, a
   watcher that listens, a region that began while one did. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#if PY_VERSION_HEX >= 0x030D0000
#define Py_BUILD_CORE 1
#include "internal/pycore_call.h" /* _PyObject_MakeTpCall */
#undef Py_BUILD_CORE
#endif

static PyObject *watchers, *none_begun; /* a list; the empty tuple */
static PyObject *twin_enter, *twin_exit;
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
    if (IS_PLAIN(self)) Py_RETURN_NONE;
    PyObject *all[4] = {self};
    for (Py_ssize_t i = 0; i < given && i < 3; i++) all[i + 1] = args[i];
    return PyObject_Vectorcall(twin_exit, all, 1 + (given < 3 ? given : 3), NULL);
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, "Begin."},
    {"__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, "End."}};

/* Where a slot lies; -1 with an error set. */
static Py_ssize_t place_of(PyObject *twin, const char *slot) {
    PyObject *found = PyObject_GetAttrString(twin, slot);
    if (found && !Py_IS_TYPE(found, &PyMemberDescr_Type)) PyErr_SetString(PyExc_TypeError, "quicken: expected slots");
    Py_ssize_t at = PyErr_Occurred() ? -1 : ((PyMemberDescrObject *)found)->d_member->offset;
    Py_XDECREF(found);
    return at;
}

static PyObject *quicken(PyObject *self, PyObject *args) {
    PyTypeObject *cls;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &cls, &PyList_Type, &list)) return NULL;
    PyObject *twin = (PyObject *)cls->tp_base;
    if ((name_at = place_of(twin, "name")) < 0 || (begun_at = place_of(twin, "begun")) < 0) return NULL;
    Py_XSETREF(watchers, Py_NewRef(list));
    Py_XSETREF(none_begun, PyTuple_New(0));
    Py_XSETREF(twin_enter, PyObject_GetAttrString(twin, "__enter__"));
    Py_XSETREF(twin_exit, PyObject_GetAttrString(twin, "__exit__"));
    if (!none_begun || !twin_enter || !twin_exit) return NULL;
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
