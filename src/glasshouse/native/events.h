/* Events of a profile, written by C: what `writer_of_calls` of profile/record.py writes for a call,
   without the objects between. What an event says of a call is asked once, and kept for all profiles
   by the call and its origin. */
enum { MOST_ABOUT = 1 << 14 };

typedef struct { int64_t begin_ns, end_ns; uint64_t what; int64_t seq; uint64_t rest; } Event;
typedef struct { PyObject *call, *origin; uint64_t what, rest; } About;

static struct { Py_ssize_t used; About places[2 * MOST_ABOUT]; } all_about;

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

/* Events(table, numbers, threads, first, about): `about(call, origin)` says the fields `what` and
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

static void clear_about(void) {
    for (About *x = all_about.places; x < all_about.places + 2 * MOST_ABOUT; x++)
        if (x->call) {
            Py_DECREF(x->call);
            Py_DECREF(x->origin);
            x->call = NULL;
        }
    all_about.used = 0;
}

/* The text of a call in events, fetched if need be; NULL with an error. */
static About *about_call(Events *e, PyObject *call, PyObject *origin) {
    size_t at = ((size_t)call >> 4) * 31 + ((size_t)origin >> 4) * 17;
    About *place = &all_about.places[at % (2 * MOST_ABOUT)];
    for (; place->call; place = &all_about.places[++at % (2 * MOST_ABOUT)])
        if (place->call == call && place->origin == origin) return place;
    Py_ssize_t used = all_about.used;
    About made = {call, origin, 0, 0};
    PyObject *told = PyObject_CallFunctionObjArgs(e->about, call, origin, NULL);
    int failed = !told || !PyArg_ParseTuple(told, "KK", &made.what, &made.rest);
    Py_XDECREF(told);
    if (failed) return NULL;
    if (all_about.used != used) return about_call(e, call, origin); /* a collection ran other calls */
    Py_INCREF(call);
    Py_INCREF(origin);
    all_about.used++;
    *place = made;
    return place;
}

static int set_thread(Events *e, PyObject *thread) {
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
static PyObject *write_event(Events *e, PyObject *call, PyObject *origin, PyObject *thread, int64_t begin_ns, int64_t seq, PyObject *clock_ns) {
    PyObject *number = PyIter_Next(e->numbers), *end;
    Py_ssize_t i = number ? PyLong_AsSsize_t(number) : 0;
    Py_XDECREF(number);
    if (!number || (i + 1) * (Py_ssize_t)sizeof(Event) > e->table.len || set_thread(e, thread)) return NULL;
    if (all_about.used == MOST_ABOUT) clear_about();
    About *about = about_call(e, call, origin);
    if (!about || !(end = PyObject_CallNoArgs(clock_ns))) return NULL;
    Event event = {begin_ns, PyLong_AsLongLong(end), about->what, seq, about->rest | e->of_thread};
    Py_DECREF(end);
    memcpy((char *)e->table.buf + i * (Py_ssize_t)sizeof event, &event, sizeof event);
    return PyLong_FromLongLong(e->first + i);
}

static PyType_Slot events_slots[] = {{Py_tp_new, new_events}, {Py_tp_dealloc, free_events}, {0, NULL}};
static PyType_Spec events_spec = {"replay.events", sizeof(Events), 0, Py_TPFLAGS_DEFAULT, events_slots};
static PyTypeObject *events_type;
