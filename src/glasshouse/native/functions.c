/* When Python functions of the user's run, in one thread: an event of begin, end and number for each call.

   The interpreter tells of each call and return. Of functions that are not the user's only their number,
   -1, is looked up. Whatever began before this is not told. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#if PY_VERSION_HEX >= 0x030D0000
static int64_t now(void) { PyTime_t t; PyTime_PerfCounterRaw(&t); return t; }
#else
static int64_t now(void) { return _PyTime_GetPerfCounter(); }
#endif

typedef struct { int64_t begin, end, what; } Event;
typedef struct { PyFrameObject *frame; int64_t begin, what; } Open;
typedef struct { PyCodeObject *code; int64_t what; } Known;

typedef struct {
    PyObject_HEAD
    PyObject *number_of; /* the number of a code object; it keeps the object */
    Event *events;
    Open *open;
    Known *known; /* a table of codes by their addresses, half of it free at least */
    int64_t count, room, space, depth, deepest, codes, places;
    int active;
} Functions;

static int64_t *find(Functions *f, PyCodeObject *code) {
    uint64_t at = ((uint64_t)(uintptr_t)code >> 4) * 0x9E3779B97F4A7C15u >> 20;
    for (;; at++) {
        Known *place = &f->known[at & (uint64_t)(f->places - 1)];
        if (!place->code) { place->code = code; place->what = -2; f->codes++; }
        if (place->code == code) return &place->what;
    }
}

static int grow(Functions *f) {
    Known *old = f->known;
    int64_t places = f->places;
    f->known = calloc((size_t)(2 * places), sizeof *f->known);
    if (!f->known) { f->known = old; return 0; }
    f->places = 2 * places, f->codes = 0;
    for (int64_t i = 0; i < places; i++) if (old[i].code) *find(f, old[i].code) = old[i].what;
    free(old);
    return 1;
}

/* The number of a function, asked for at its first call; -1 of what is not the user's. */
static int64_t what_of(Functions *f, PyCodeObject *code) {
    if (2 * f->codes >= f->places && !grow(f)) return -1;
    int64_t *what = find(f, code);
    if (*what != -2) return *what;
    PyObject *number = PyObject_CallOneArg(f->number_of, (PyObject *)code);
    int64_t own = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    return *find(f, code) = own;
}

static void write_event(Functions *f, Open *open) {
    if (f->count >= f->room) return;
    if (f->count == f->space) {
        int64_t space = f->space ? 2 * f->space : 1024;
        Event *more = realloc(f->events, (size_t)space * sizeof *more);
        if (!more) return;
        f->events = more, f->space = space;
    }
    f->events[f->count++] = (Event){open->begin, now(), open->what};
}

static void function_begins(Functions *f, PyFrameObject *frame) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    int64_t what = what_of(f, code);
    Py_DECREF(code);
    if (what < 0) return;
    if (f->depth == f->deepest) {
        Open *more = realloc(f->open, (size_t)(2 * f->deepest + 64) * sizeof *more);
        if (!more) return;
        f->open = more, f->deepest = 2 * f->deepest + 64;
    }
    f->open[f->depth++] = (Open){frame, now(), what};
}

/* A function ends, and with it those within it whose end nobody told. */
static void function_ends(Functions *f, PyFrameObject *frame) {
    int64_t at = f->depth - 1;
    while (at >= 0 && f->open[at].frame != frame) at--;
    if (at < 0) return;
    while (f->depth > at) write_event(f, &f->open[--f->depth]);
}

static int told(PyObject *self, PyFrameObject *frame, int what, PyObject *arg) {
    (void)arg;
    Functions *f = (Functions *)self;
    if (!f->active) { PyEval_SetProfile(NULL, NULL); return 0; }
    if (f->count >= f->room) return 0;
    if (what == PyTrace_CALL) function_begins(f, frame);
    else if (what == PyTrace_RETURN) function_ends(f, frame);
    return 0;
}

/* begin(): this thread's functions are told from now on. */
static PyObject *begin(Functions *f, PyObject *none) {
    (void)none;
    f->active = 1;
    PyEval_SetProfile(told, (PyObject *)f);
    Py_RETURN_NONE;
}

/* sys.setprofile(self), as of those who put back what was there before: begin again. */
static PyObject *call(Functions *f, PyObject *args, PyObject *named) {
    (void)args, (void)named;
    return begin(f, NULL);
}

/* end(): the events as bytes; what still runs ends now. Called in any thread. */
static PyObject *end(Functions *f, PyObject *none) {
    (void)none;
    f->active = 0;
    while (f->depth) write_event(f, &f->open[--f->depth]);
    return PyBytes_FromStringAndSize((char *)f->events, (Py_ssize_t)(f->count * (int64_t)sizeof(Event)));
}

static int init(Functions *f, PyObject *args, PyObject *named) {
    (void)named;
    PyObject *number_of;
    long long room;
    if (!PyArg_ParseTuple(args, "OL", &number_of, &room)) return -1;
    Py_INCREF(number_of);
    f->number_of = number_of, f->room = room, f->places = 256;
    f->known = calloc(256, sizeof *f->known);
    return f->known ? 0 : (PyErr_NoMemory(), -1);
}

static void destroy(Functions *f) {
    free(f->events), free(f->open), free(f->known);
    Py_XDECREF(f->number_of);
    Py_TYPE(f)->tp_free((PyObject *)f);
}

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)begin, METH_NOARGS, "This thread's functions are told from now on."},
    {"end", (PyCFunction)end, METH_NOARGS, "The events as bytes."},
    {NULL},
};
static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "functions.Functions",
    .tp_basicsize = sizeof(Functions),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)init,
    .tp_dealloc = (destructor)destroy,
    .tp_call = (ternaryfunc)call,
    .tp_methods = methods,
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "functions", NULL, -1, NULL};

PyMODINIT_FUNC PyInit_functions(void) {
    PyObject *m = PyType_Ready(&type) < 0 ? NULL : PyModule_Create(&module);
    if (m && PyModule_AddObjectRef(m, "Functions", (PyObject *)&type) < 0) Py_CLEAR(m);
    return m;
}
