/* Events of a profile, written by C: what `writer_of_calls` of profile/record.py writes for a call that
   was seen before, without the objects between. What an event says of such a call is asked once, and
   kept by the call, the module, the pass and the thread. */
enum { MOST_ABOUT = 1 << 14 };

typedef struct { int64_t begin_ns, end_ns; uint64_t what; int64_t seq; uint64_t rest; } Event;
typedef struct { PyObject *by[4]; uint64_t what, rest; } About; /* by call, scope, phase, thread */

typedef struct {
    PyObject_HEAD
    Py_buffer table;
    PyObject *numbers, *about;
    long long first;
    Py_ssize_t used;
    About known[2 * MOST_ABOUT];
} Events;

static void forget_about(Events *e) {
    for (Py_ssize_t i = 0; i < 2 * MOST_ABOUT; i++)
        if (e->known[i].by[0]) {
            for (int j = 0; j < 4; j++) Py_DECREF(e->known[i].by[j]);
            e->known[i].by[0] = NULL;
        }
    e->used = 0;
}

static void free_events(Events *e) {
    PyTypeObject *type = Py_TYPE(e);
    forget_about(e);
    PyBuffer_Release(&e->table);
    Py_XDECREF(e->numbers);
    Py_XDECREF(e->about);
    type->tp_free(e);
    Py_DECREF(type);
}

/* Events(table, numbers, first, about): `about(call, scope, phase, thread)` says the fields `what` and
   `scope` as one number, and `stack` to `phase` as another. */
static PyObject *new_events(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)named;
    Events *e = (Events *)type->tp_alloc(type, 0);
    if (!e || !PyArg_ParseTuple(args, "w*OLO", &e->table, &e->numbers, &e->first, &e->about)) {
        if (e) e->numbers = e->about = NULL;
        Py_XDECREF(e);
        return NULL;
    }
    Py_INCREF(e->numbers);
    Py_INCREF(e->about);
    return (PyObject *)e;
}

/* What is known of a call here, asked for if need be; NULL with an error. */
static About *about_call(Events *e, PyObject *by[4]) {
    size_t at = ((size_t)by[0] >> 4) * 31 + ((size_t)by[1] >> 4) * 17 + ((size_t)by[2] >> 4);
    About *found = &e->known[at % (2 * MOST_ABOUT)];
    for (; found->by[0]; found = &e->known[++at % (2 * MOST_ABOUT)])
        if (!memcmp(found->by, by, sizeof found->by)) return found;
    Py_ssize_t used = e->used;
    PyObject *told = PyObject_CallFunctionObjArgs(e->about, by[0], by[1], by[2], by[3], NULL);
    if (told && e->used != used) { /* a collection ran calls that were asked for, too */
        Py_DECREF(told);
        return about_call(e, by);
    }
    if (!told || !PyArg_ParseTuple(told, "KK", &found->what, &found->rest)) {
        Py_XDECREF(told);
        return NULL;
    }
    Py_DECREF(told);
    for (int j = 0; j < 4; j++) found->by[j] = Py_NewRef(by[j]);
    e->used++;
    return found;
}

/* The event of a call that ends at `end_ns`: its number, for the node; NULL without an error where
   there is no room. */
static PyObject *write_event(Events *e, PyObject *by[4], int64_t begin_ns, int64_t seq, PyObject *clock_ns) {
    PyObject *number = PyIter_Next(e->numbers), *end = NULL;
    Py_ssize_t i = number ? PyLong_AsSsize_t(number) : 0;
    Py_XDECREF(number);
    if (!number || (i + 1) * (Py_ssize_t)sizeof(Event) > e->table.len) return NULL;
    if (e->used == MOST_ABOUT) forget_about(e);
    About *about = about_call(e, by);
    if (!about || !(end = PyObject_CallNoArgs(clock_ns))) return NULL;
    Event event = {begin_ns, PyLong_AsLongLong(end), about->what, seq, about->rest};
    Py_DECREF(end);
    memcpy((char *)e->table.buf + i * (Py_ssize_t)sizeof event, &event, sizeof event);
    return PyLong_FromLongLong(e->first + i);
}

static PyType_Slot events_slots[] = {{Py_tp_new, new_events}, {Py_tp_dealloc, free_events}, {0, NULL}};
static PyType_Spec events_spec = {"door.Events", sizeof(Events), 0, Py_TPFLAGS_DEFAULT, events_slots};
static PyTypeObject *events_type;
