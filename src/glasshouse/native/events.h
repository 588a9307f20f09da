/* Events of a profile, written by C: what `writer_of_calls` of profile/record.py writes for a call that
   was seen before, without the objects between. What an event says of such a call is asked once, and
   kept for all profiles by the call, the module and the pass. */
enum { MOST_ABOUT = 1 << 14 };

typedef struct { int64_t begin_ns, end_ns; uint64_t what; int64_t seq; uint64_t rest; } Event;
typedef struct { PyObject *by[3]; uint64_t what, rest; } About; /* by call, scope, phase */

static struct { Py_ssize_t used; About places[2 * MOST_ABOUT]; } known_about;

typedef struct {
    PyObject_HEAD
    Py_buffer table;
    PyObject *numbers, *threads, *about, *thread;
    uint64_t of_thread; /* the field of `thread` */
    long long first;
} Events;

static void free_events(Events *e) {
    PyTypeObject *type = Py_TYPE(e);
    PyBuffer_Release(&e->table);
    Py_XDECREF(e->numbers);
    Py_XDECREF(e->threads);
    Py_XDECREF(e->about);
    Py_XDECREF(e->thread);
    type->tp_free(e);
    Py_DECREF(type);
}

/* Events(table, numbers, threads, first, about): `about(call, scope, phase)` says the fields `what` and
   `scope` as one number and `stack` to `phase` as another, `threads[ident]` a thread's number. */
static PyObject *new_events(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)named;
    Events *e = (Events *)type->tp_alloc(type, 0);
    if (!e || !PyArg_ParseTuple(args, "w*OOLO", &e->table, &e->numbers, &e->threads, &e->first, &e->about)) {
        if (e) e->numbers = e->threads = e->about = NULL;
        Py_XDECREF(e);
        return NULL;
    }
    Py_INCREF(e->numbers);
    Py_INCREF(e->threads);
    Py_INCREF(e->about);
    return (PyObject *)e;
}

static void forget_about(void) {
    for (About *x = known_about.places; x < known_about.places + 2 * MOST_ABOUT; x++)
        if (x->by[0]) {
            for (int j = 0; j < 3; j++) Py_DECREF(x->by[j]);
            x->by[0] = NULL;
        }
    known_about.used = 0;
}

/* What is known of a call here, asked for if need be; NULL with an error. */
static About *about_call(Events *e, PyObject *by[3]) {
    size_t at = ((size_t)by[0] >> 4) * 31 + ((size_t)by[1] >> 4) * 17 + ((size_t)by[2] >> 4);
    About *found = &known_about.places[at % (2 * MOST_ABOUT)];
    for (; found->by[0]; found = &known_about.places[++at % (2 * MOST_ABOUT)])
        if (!memcmp(found->by, by, sizeof found->by)) return found;
    Py_ssize_t used = known_about.used;
    About made;
    PyObject *told = PyObject_CallFunctionObjArgs(e->about, by[0], by[1], by[2], NULL);
    int failed = !told || !PyArg_ParseTuple(told, "KK", &made.what, &made.rest);
    Py_XDECREF(told);
    if (failed) return NULL;
    if (known_about.used != used) return about_call(e, by); /* a collection ran other calls */
    for (int j = 0; j < 3; j++) made.by[j] = Py_NewRef(by[j]);
    known_about.used++;
    *found = made;
    return found;
}

static int see_thread(Events *e, PyObject *thread) {
    if (thread == e->thread) return 0;
    PyObject *number = PyObject_GetItem(e->threads, thread);
    if (!number) return -1;
    e->of_thread = (uint64_t)PyLong_AsLongLong(number) << 32;
    Py_DECREF(number);
    Py_XSETREF(e->thread, Py_NewRef(thread));
    return 0;
}

/* The event of a call that ends now: its number, for the node; NULL without an error where there is no
   room. */
static PyObject *write_event(Events *e, PyObject *by[3], PyObject *thread, int64_t begin_ns, int64_t seq, PyObject *clock_ns) {
    PyObject *number = PyIter_Next(e->numbers), *end;
    Py_ssize_t i = number ? PyLong_AsSsize_t(number) : 0;
    Py_XDECREF(number);
    if (!number || (i + 1) * (Py_ssize_t)sizeof(Event) > e->table.len || see_thread(e, thread)) return NULL;
    if (known_about.used == MOST_ABOUT) forget_about();
    About *about = about_call(e, by);
    if (!about || !(end = PyObject_CallNoArgs(clock_ns))) return NULL;
    Event event = {begin_ns, PyLong_AsLongLong(end), about->what, seq, about->rest | e->of_thread};
    Py_DECREF(end);
    memcpy((char *)e->table.buf + i * (Py_ssize_t)sizeof event, &event, sizeof event);
    return PyLong_FromLongLong(e->first + i);
}

static PyType_Slot events_slots[] = {{Py_tp_new, new_events}, {Py_tp_dealloc, free_events}, {0, NULL}};
static PyType_Spec events_spec = {"replay.Events", sizeof(Events), 0, Py_TPFLAGS_DEFAULT, events_slots};
static PyTypeObject *events_type;
