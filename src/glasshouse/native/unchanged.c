/* One guard on all classes and functions that a trace looked into.

CPython gives each class a version (`tp_version_tag`), which any write to the class or to one of its
bases takes away. While the versions are the same, so is all that can be found on the classes. Where
one differs, Python looks again (`recheck`) and the new versions are noted. A function is compared by
what decides a call of it: its code and its defaults. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyFunctionObject *fn; /* not owned: with the function dies the entry */
    PyObject *code, *defaults, *kwdefaults;
} FunctionState;

typedef struct {
    PyObject_HEAD
    int (*holds)(PyObject *self, PyObject *value); /* as in frame_hook.c, NativeGuard */
    Py_ssize_t class_count, function_count;
    PyTypeObject **classes; /* not owned, as the functions */
    unsigned int *versions;
    FunctionState *functions;
    PyObject *recheck;
} Unchanged;

/* The version of a class; 0 where CPython has none left for it. */
static unsigned int version_of(PyTypeObject *cls) {
#if PY_VERSION_HEX >= 0x030C0000
    PyUnstable_Type_AssignVersionTag(cls);
#else
    static PyObject *name;
    if (!name) name = PyUnicode_InternFromString("__class__");
    if (name) _PyType_Lookup(cls, name); /* a look-up that the cache keeps needs a version */
#endif
    return cls->tp_version_tag;
}

static int functions_hold(Unchanged *g) {
    for (Py_ssize_t i = 0; i < g->function_count; i++) {
        FunctionState *s = &g->functions[i];
        if (s->fn->func_code != s->code || s->fn->func_defaults != s->defaults || s->fn->func_kwdefaults != s->kwdefaults)
            return 0;
    }
    return 1;
}

static int unchanged_holds(PyObject *self, PyObject *value) {
    Unchanged *g = (Unchanged *)self;
    int same = 1;
    for (Py_ssize_t i = 0; same && i < g->class_count; i++)
        same = g->versions[i] && g->classes[i]->tp_version_tag == g->versions[i];
    if (!functions_hold(g)) return 0;
    if (same) return 1;
    PyObject *r = PyObject_CallNoArgs(g->recheck);
    int holds = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    if (holds != 1) return 0; /* an error, if there is one, is the caller's to look at */
    for (Py_ssize_t i = 0; i < g->class_count; i++) g->versions[i] = version_of(g->classes[i]);
    return functions_hold(g);
}

static int unchanged_traverse(Unchanged *g, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < g->function_count; i++) {
        Py_VISIT(g->functions[i].code); Py_VISIT(g->functions[i].defaults); Py_VISIT(g->functions[i].kwdefaults);
    }
    Py_VISIT(g->recheck);
    return 0;
}
static int unchanged_clear(Unchanged *g) {
    for (Py_ssize_t i = 0; i < g->function_count; i++) {
        Py_CLEAR(g->functions[i].code); Py_CLEAR(g->functions[i].defaults); Py_CLEAR(g->functions[i].kwdefaults);
    }
    g->class_count = g->function_count = 0;
    Py_CLEAR(g->recheck);
    return 0;
}
static void unchanged_dealloc(Unchanged *g) {
    PyObject_GC_UnTrack(g);
    unchanged_clear(g);
    PyMem_Free(g->classes);
    PyMem_Free(g->versions);
    PyMem_Free(g->functions);
    Py_TYPE(g)->tp_free((PyObject *)g);
}

/* Unchanged([class, ...], [function, ...], recheck): of now. */
static PyObject *unchanged_new(PyTypeObject *type, PyObject *a, PyObject *kw) {
    PyObject *classes, *functions, *recheck;
    if (!PyArg_ParseTuple(a, "O!O!O", &PyList_Type, &classes, &PyList_Type, &functions, &recheck)) return NULL;
    Py_ssize_t n = PyList_GET_SIZE(classes), m = PyList_GET_SIZE(functions);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyType_Check(PyList_GET_ITEM(classes, i))) return PyErr_Format(PyExc_TypeError, "Unchanged: expected classes");
    for (Py_ssize_t i = 0; i < m; i++)
        if (!PyFunction_Check(PyList_GET_ITEM(functions, i))) return PyErr_Format(PyExc_TypeError, "Unchanged: expected functions");
    Unchanged *g = (Unchanged *)type->tp_alloc(type, 0);
    if (!g) return NULL;
    g->holds = unchanged_holds;
    g->recheck = Py_NewRef(recheck);
    g->classes = PyMem_Calloc(n + 1, sizeof *g->classes);
    g->versions = PyMem_Calloc(n + 1, sizeof *g->versions);
    g->functions = PyMem_Calloc(m + 1, sizeof *g->functions);
    if (!g->classes || !g->versions || !g->functions) { Py_DECREF(g); return PyErr_NoMemory(); }
    for (Py_ssize_t i = 0; i < m; i++) {
        PyFunctionObject *fn = (PyFunctionObject *)PyList_GET_ITEM(functions, i);
        g->functions[i] = (FunctionState){fn, Py_NewRef(fn->func_code), Py_XNewRef(fn->func_defaults), Py_XNewRef(fn->func_kwdefaults)};
        g->function_count = i + 1;
    }
    for (Py_ssize_t i = 0; i < n; i++) { /* the versions are taken by the first check, which looks */
        g->classes[i] = (PyTypeObject *)PyList_GET_ITEM(classes, i);
        g->class_count = i + 1;
    }
    return (PyObject *)g;
}
static PyTypeObject UnchangedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "glasshouse.Unchanged", .tp_basicsize = sizeof(Unchanged),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_new = unchanged_new,
    .tp_dealloc = (destructor)unchanged_dealloc, .tp_traverse = (traverseproc)unchanged_traverse,
    .tp_clear = (inquiry)unchanged_clear};

static PyObject *class_version(PyObject *m, PyObject *cls) {
    if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "class_version: expected a class");
    return PyLong_FromUnsignedLong(version_of((PyTypeObject *)cls));
}
static PyMethodDef functions[] = {
    {"class_version", class_version, METH_O, "A number that any write to a class or a base of it changes; 0: unknown."},
    {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "unchanged", NULL, -1, functions};

PyMODINIT_FUNC PyInit_unchanged(void) {
    if (PyType_Ready(&UnchangedType) < 0) return NULL;
    PyObject *m = PyModule_Create(&module);
    if (!m) return NULL;
    PyModule_AddObject(m, "Unchanged", Py_NewRef((PyObject *)&UnchangedType));
    return m;
}
