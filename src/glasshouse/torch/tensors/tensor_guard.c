/* Guards on PyTorch's tensors and modes, for frame_hook.c: it calls `holds` of either directly.

   A TensorGuard compares a tensor's class, dtype, dispatch keys, sizes, strides and requires_grad with
   those of the tensor that it was made of, and may forbid hooks. It looks at them where they lie: tensor_guard.py finds out
   at which offsets. A CallsGuard calls functions, which tell the modes, and compares their results; where a C function tells
   the same, and what it told when the guard was made, Python is not asked. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef int (*Holds)(PyObject *self, PyObject *value); /* as in frame_hook.c */

static struct {
    Py_ssize_t impl, sizes, dtype, key_set, meta; /* in the object; in the TensorImpl … */
    Py_ssize_t requires_grad, grad_fn;            /* … in its autograd metadata */
    Py_ssize_t hooks, late_hooks;                 /* in the object: dicts, or nothing */
} parts;
enum { MOST_INLINE = 5 }; /* sizes that lie in a TensorImpl itself, before as many strides */

typedef struct {
    PyObject_HEAD
    Holds holds;
    PyTypeObject *kind;
    uint64_t keys;
    uint16_t dtype;
    int requires_grad, is_leaf, is_unhooked; /* the last: hooks are forbidden */
    int64_t ndim;
    int64_t *numbers; /* sizes, then strides */
} TensorGuard;

static int differentiable(const char *impl, int *is_leaf) {
    const char *meta = *(char **)(impl + parts.meta);
    *is_leaf = !meta || !*(void **)(meta + parts.grad_fn);
    return meta && (*(const uint8_t *)(meta + parts.requires_grad) || !*is_leaf);
}

static int is_empty(const char *place) {
    PyObject *hooks = *(PyObject **)place;
    return !hooks || hooks == Py_None || (PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) == 0);
}

static int tensor_holds(PyObject *self, PyObject *x) {
    TensorGuard *g = (TensorGuard *)self;
    if (Py_TYPE(x) != g->kind) return 0;
    if (g->is_unhooked && !(is_empty((char *)x + parts.hooks) && is_empty((char *)x + parts.late_hooks))) return 0;
    const char *impl = *(char **)((char *)x + parts.impl);
    const int64_t *sizes = (const int64_t *)(impl + parts.sizes);
    if (sizes[-1] != g->ndim || *(const uint16_t *)(impl + parts.dtype) != g->dtype) return 0;
    if (*(const uint64_t *)(impl + parts.key_set) != g->keys) return 0;
    int is_leaf;
    if (differentiable(impl, &is_leaf) != g->requires_grad || is_leaf != g->is_leaf) return 0;
    const int is_inline = g->ndim <= MOST_INLINE;
    const int64_t *first = is_inline ? sizes : *(const int64_t **)sizes;
    const int64_t *strides = first + (is_inline ? MOST_INLINE : g->ndim);
    for (int64_t i = 0; i < g->ndim; i++)
        if (first[i] != g->numbers[i] || strides[i] != g->numbers[g->ndim + i]) return 0;
    return 1;
}

/* TensorGuard(tensor): what holds for tensors that are like it. */
static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)named;
    PyObject *x;
    if (!PyArg_ParseTuple(args, "O", &x)) return NULL;
    TensorGuard *g = (TensorGuard *)type->tp_alloc(type, 0);
    if (!g) return NULL;
    const char *impl = *(char **)((char *)x + parts.impl);
    const int64_t *sizes = (const int64_t *)(impl + parts.sizes);
    g->holds = tensor_holds, g->kind = (PyTypeObject *)Py_NewRef(Py_TYPE(x));
    g->ndim = sizes[-1], g->dtype = *(const uint16_t *)(impl + parts.dtype);
    g->keys = *(const uint64_t *)(impl + parts.key_set);
    g->requires_grad = differentiable(impl, &g->is_leaf);
    g->numbers = PyMem_Malloc(sizeof(int64_t) * (size_t)(2 * g->ndim + 1));
    if (!g->numbers) return Py_DECREF(g), PyErr_NoMemory();
    const int is_inline = g->ndim <= MOST_INLINE;
    const int64_t *first = is_inline ? sizes : *(const int64_t **)sizes;
    memcpy(g->numbers, first, sizeof(int64_t) * (size_t)g->ndim);
    memcpy(g->numbers + g->ndim, first + (is_inline ? MOST_INLINE : g->ndim), sizeof(int64_t) * (size_t)g->ndim);
    return (PyObject *)g;
}
/* forbid_hooks(): from now on it holds for tensors without hooks alone. */
static PyObject *forbid_hooks(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ((TensorGuard *)self)->is_unhooked = 1;
    Py_RETURN_NONE;
}
static void tensor_free(TensorGuard *g) {
    PyTypeObject *type = Py_TYPE(g);
    Py_XDECREF(g->kind);
    PyMem_Free(g->numbers);
    type->tp_free(g);
    Py_DECREF(type);
}

/* A C function of PyTorch's that tells the same as one in Python, and what it told. */
typedef struct {
    int64_t (*ask)(int64_t);
    int64_t argument, mask, want;
} Reader;

static int is_told(const Reader *r) { return r->ask && (r->ask(r->argument) & r->mask) == r->want; }

typedef struct {
    PyObject_HEAD
    Holds holds;
    PyObject *calls; /* ((function, argument or None, result), …) */
    Reader *readers; /* of each, in C; `ask` is NULL where there is none */
} CallsGuard;

static int calls_hold(PyObject *self, PyObject *value) {
    (void)value;
    const CallsGuard *g = (CallsGuard *)self;
    PyObject *calls = g->calls;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
        if (is_told(g->readers + i)) continue;
        PyObject *call = PyTuple_GET_ITEM(calls, i), *fn = PyTuple_GET_ITEM(call, 0), *given = PyTuple_GET_ITEM(call, 1);
        PyObject *want = PyTuple_GET_ITEM(call, 2), *got = given == Py_None ? PyObject_CallNoArgs(fn) : PyObject_CallOneArg(fn, given);
        if (!got) return PyErr_Clear(), 0;
        const int same = got == want || (Py_TYPE(got) == Py_TYPE(want) && PyLong_CheckExact(got) && PyObject_RichCompareBool(got, want, Py_EQ) == 1);
        Py_DECREF(got);
        if (!same) return 0;
    }
    return 1;
}
static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)named;
    PyObject *calls, *readers;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &calls, &PyTuple_Type, &readers)) return NULL;
    if (PyTuple_GET_SIZE(readers) != PyTuple_GET_SIZE(calls))
        return PyErr_SetString(PyExc_TypeError, "CallsGuard: expected a reader or None for each call"), NULL;
    CallsGuard *g = (CallsGuard *)type->tp_alloc(type, 0);
    if (!g) return NULL;
    g->holds = calls_hold, g->calls = Py_NewRef(calls);
    g->readers = PyMem_Calloc((size_t)PyTuple_GET_SIZE(calls) + 1, sizeof(Reader));
    if (!g->readers) return Py_DECREF(g), PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
        PyObject *call = PyTuple_GET_ITEM(calls, i), *given = PyTuple_GET_ITEM(readers, i);
        Reader *r = g->readers + i;
        unsigned long long address = 0;
        long long argument = 0, mask = 0;
        const int is_call = PyTuple_Check(call) && PyTuple_GET_SIZE(call) == 3;
        if (!is_call) PyErr_SetString(PyExc_TypeError, "CallsGuard: expected (function, argument, result)");
        if (!is_call || (given != Py_None && !PyArg_ParseTuple(given, "KLL", &address, &argument, &mask)))
            return Py_DECREF(g), NULL;
        *r = (Reader){(int64_t (*)(int64_t))(uintptr_t)address, argument, mask, 0};
        if (r->ask) r->want = r->ask(argument) & mask;
    }
    return (PyObject *)g;
}
static void calls_free(CallsGuard *g) {
    PyTypeObject *type = Py_TYPE(g);
    Py_XDECREF(g->calls);
    PyMem_Free(g->readers);
    type->tp_free(g);
    Py_DECREF(type);
}

/* holds(guard, value) -> whether it does, as frame_hook.c would ask. */
static PyObject *holds(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *guard, *value;
    if (!PyArg_ParseTuple(args, "OO", &guard, &value)) return NULL;
    return PyBool_FromLong(((TensorGuard *)guard)->holds(guard, value));
}
/* set_parts(impl, sizes, dtype, key_set, meta, requires_grad, grad_fn, hooks, late_hooks): see `parts`. */
static PyObject *set_parts(PyObject *self, PyObject *args) {
    (void)self;
    if (!PyArg_ParseTuple(args, "nnnnnnnnn", &parts.impl, &parts.sizes, &parts.dtype, &parts.key_set, &parts.meta,
                          &parts.requires_grad, &parts.grad_fn, &parts.hooks, &parts.late_hooks))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef tensor_methods[] = {{"forbid_hooks", forbid_hooks, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot tensor_slots[] = {
    {Py_tp_new, tensor_new}, {Py_tp_dealloc, tensor_free}, {Py_tp_methods, tensor_methods}, {0, NULL}};
static PyType_Spec tensor_spec = {"tensor_guard.TensorGuard", sizeof(TensorGuard), 0, Py_TPFLAGS_DEFAULT, tensor_slots};
static PyType_Slot calls_slots[] = {{Py_tp_new, calls_new}, {Py_tp_dealloc, calls_free}, {0, NULL}};
static PyType_Spec calls_spec = {"tensor_guard.CallsGuard", sizeof(CallsGuard), 0, Py_TPFLAGS_DEFAULT, calls_slots};
static PyMethodDef functions[] = {
    {"holds", holds, METH_VARARGS, NULL},
    {"set_parts", set_parts, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tensor_guard", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_tensor_guard(void) {
    PyObject *m = PyModule_Create(&module);
    if (!m) return NULL;
    PyModule_AddObject(m, "TensorGuard", PyType_FromSpec(&tensor_spec));
    PyModule_AddObject(m, "CallsGuard", PyType_FromSpec(&calls_spec));
    return m;
}
