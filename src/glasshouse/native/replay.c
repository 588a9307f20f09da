/* Replay: what dispatch/bind.py, compile/programs/recording.py and autograd/tape.py do with calls
   that were made before, done here without Python. compile/programs/replay.py says when that may
   be, and what is kept; the declarations that it generates from the classes stand in front of this
   file.

   What was not made before, or is not the common case (another backend, a replaced primitive, several
   results, values of a transform), runs in Python. Objects of Python's classes with slots are filled in
   place. */
#include <math.h>
#include <stddef.h>
#include <structmember.h>

#include "events.h"

enum {
    MOST_TENSORS = 8, /* among the arguments of a call that is replayed */
    MOST_ITEMS = 48   /* parts of its key */
};

/* Given once, by `setup`. */
static PyObject *state, *flags, *defaults, *clock_ns, *run_in_python, *collect_function, *collect_pull,
    *origin_of, *outside, *numbers, *zero, *empty;
static PyTypeObject *dtype_type, *tensor_type, *call_type, *node_type, *entry_type;
static Py_ssize_t most_pending, most_held_bytes;

/* Names of attributes. */
#define NAMES(X) X(spec) X(payload) X(backend) X(tape_entry) X(slot) X(mode) X(replays) X(recorder) X(replaced) X(seq) \
    X(thread) X(replayed) X(verify) X(evaluate) X(pending) X(held_bytes) X(records) X(scope) X(phase) X(function) X(op) \
    X(key) X(name) X(modes) X(values_hidden) X(varying) X(imported) X(saved_hooks) X(watchers) X(origins) X(base) X(__dict__)
#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)

static inline void put(PyObject *o, Py_ssize_t offset, PyObject *value) {
    *(PyObject **)((char *)o + offset) = value;
}
static inline PyObject *get(PyObject *o, Py_ssize_t offset) { return *(PyObject **)((char *)o + offset); }
static inline PyObject *new(PyObject *o) { return Py_NewRef(o); }
#define FIELD(tuple, name) PyTuple_GET_ITEM(tuple, name)

/* ---------------------------------------------------------------- this thread's state */

/* The dicts of this thread's part of `state` and of a recorder: threading.local looks them up again
   at each attribute. They are borrowed, for they live as long as thread and recorder do. */
static __thread struct {
    uint64_t thread;
    PyObject *recorder, *state_dict, *recorder_dict;
    PyObject *scope, *phase, *origin; /* the origin of the calls made last */
    PyObject *function; /* the composed function that Python runs, as `state` has it; NULL: none */
} here;

static PyObject *dict_of(PyObject *local) {
    PyObject *dict = PyObject_GetAttr(local, s___dict__);
    Py_XDECREF(dict);
    return dict;
}
static int look_at_state(void) {
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get()) + 1;
    if (here.thread == thread) return 0;
    here.thread = 0;
    Py_CLEAR(here.recorder);
    Py_CLEAR(here.scope);
    Py_CLEAR(here.phase);
    Py_CLEAR(here.origin);
    if (!(here.state_dict = dict_of(state))) return -1;
    here.thread = thread;
    return 0;
}
static int look_at_recorder(PyObject *backend) {
    PyObject *recorder = PyObject_GetAttr(backend, s_recorder);
    if (!recorder) return -1;
    if (here.recorder == recorder) {
        Py_DECREF(recorder);
        return 0;
    }
    PyObject *before = here.recorder;
    here.recorder = NULL;
    if ((here.recorder_dict = dict_of(recorder))) here.recorder = recorder; /* so that it stays */
    Py_XDECREF(before);
    return here.recorder ? 0 : -1;
}
static PyObject *now(PyObject *dict, PyObject *name) { /* borrowed; NULL without an error: not there */
    return PyDict_GetItemWithError(dict, name);
}

/* Where calls come from that are made now; borrowed. */
static PyObject *origin_here(void) {
    PyObject *scope = now(here.state_dict, s_scope), *phase = now(here.state_dict, s_phase);
    if (here.origin && here.scope == scope && here.phase == phase) return here.origin;
    PyObject *origins = scope == Py_None ? new(outside) : PyObject_GetAttr(scope, s_origins), *origin = NULL;
    if (!origins) return NULL;
    if (origins != Py_None) origin = Py_XNewRef(PyDict_GetItemWithError(origins, phase));
    Py_DECREF(origins);
    if (!origin && !PyErr_Occurred()) origin = PyObject_CallFunctionObjArgs(origin_of, scope, phase, NULL);
    if (!origin) return NULL;
    Py_XSETREF(here.scope, new(scope));
    Py_XSETREF(here.phase, new(phase));
    Py_XSETREF(here.origin, origin);
    return origin;
}

/* ---------------------------------------------------------------- recording */

/* Append a node that waits; takes `inputs`. The list is looked up late: the collector of garbage, a
   watcher or a finalizer may have had everything computed, and another list begun. */
static PyObject *append_node(PyObject *call, PyObject *inputs, PyObject *scalar, PyObject *origin, PyObject *function) {
    PyObject *made = node_type->tp_alloc(node_type, 0);
    if (!made) { Py_DECREF(inputs); return NULL; }
    put(made, Node_at.call, new(call));
    put(made, Node_at.inputs, inputs);
    put(made, Node_at.spec, new(get(call, Call_at.out)));
    put(made, Node_at.origin, new(origin));
    put(made, Node_at.function, new(function));
    put(made, Node_at.number, PyLong_FromLong(-1));
    put(made, Node_at.value, new(Py_None));
    put(made, Node_at.scalar, new(scalar));
    put(made, Node_at.owned, new(Py_False));
    if (PyList_Append(now(here.recorder_dict, s_pending), made)) Py_CLEAR(made);
    return made;
}

/* A tensor around a payload. */
static PyObject *boxed(PyObject *payload, PyObject *spec, PyObject *backend) {
    PyObject *made = tensor_type->tp_alloc(tensor_type, 0);
    if (made && (PyObject_SetAttr(made, s_payload, payload) || PyObject_SetAttr(made, s_spec, spec) ||
                 PyObject_SetAttr(made, s_backend, backend)))
        Py_CLEAR(made);
    return made;
}

/* Fill a new entry of the tape; takes `parents` and `saved`. */
static int fill_entry(PyObject *made, PyObject *call, PyObject *parents, PyObject *saved, PyObject *result,
                      PyObject *backend) {
    PyObject *saved_out = PyTuple_Pack(1, result), *seq = PyIter_Next(numbers);
    put(made, CallEntry_at.parents, parents);
    put(made, CallEntry_at.saved, saved);
    put(made, CallEntry_at.saved_out, saved_out);
    put(made, CallEntry_at.seq, seq);
    if (!saved_out || !seq) return -1;
    put(made, CallEntry_at.call, new(call));
    put(made, CallEntry_at.backend, new(backend));
    put(made, CallEntry_at.mode, new(Py_None));
    put(made, CallEntry_at.freed, new(Py_False));
    put(made, CallEntry_at.grad_hooks, new(Py_None));
    put(made, CallEntry_at.scope, new(now(here.state_dict, s_scope)));
    return 0;
}

/* Have the backend compute if the recording is to be cut here. */
static int cut_if_full(PyObject *backend) {
    PyObject *held = now(here.recorder_dict, s_held_bytes), *pending = now(here.recorder_dict, s_pending);
    if (PyList_GET_SIZE(pending) < most_pending && PyLong_AsSsize_t(held) <= most_held_bytes) return 0;
    PyObject *done = PyObject_CallMethodNoArgs(backend, s_evaluate);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* The backend that computes here, if it records, and calls may be replayed at once:
   nothing is replaced or verified. NULL without an error if not. */
static PyObject *recording_backend(PyObject **replays) {
    PyObject *verify = PyObject_GetAttr(flags, s_verify);
    if (!verify) return NULL;
    Py_DECREF(verify);
    if (verify != Py_False || look_at_state()) return NULL;
    PyObject *packing = now(here.state_dict, s_saved_hooks); /* what the tape saves is packed */
    if (packing && packing != Py_None) return NULL;
    PyObject *backend = new(now(here.state_dict, s_backend));
    if (backend == Py_None) Py_SETREF(backend, PyObject_GetAttr(defaults, s_backend));
    if (!backend || backend == Py_None) { /* none was used so far */
        Py_XDECREF(backend);
        return NULL;
    }
    *replays = PyObject_GetAttr(backend, s_replays);
    PyObject *replaced = *replays && *replays != Py_None ? PyObject_GetAttr(backend, s_replaced) : NULL;
    int usable = replaced && !PyDict_GET_SIZE(replaced) && !look_at_recorder(backend);
    Py_XDECREF(replaced);
    if (!usable) {
        Py_CLEAR(*replays);
        Py_CLEAR(backend);
    }
    return backend;
}

/* ---------------------------------------------------------------- replaying calls */

/* Calls that are being replayed: place i is the i-th of them, place -1 - i the i-th payload or tensor
   that is given. */
typedef struct {
    PyObject *backend, *calls, *given, *tensors, *scalar; /* `tensors`: NULL where nothing is tracked */
    PyObject **nodes, **entries;                          /* by call: its payload, its entry on the tape */
    PyObject *function;                                   /* NULL: the one that runs */
    Py_ssize_t made;
} Replay;

static inline PyObject *payload_at(Replay *r, PyObject *place) {
    Py_ssize_t i = PyLong_AsSsize_t(place);
    return i >= 0 ? r->nodes[i] : PyTuple_GET_ITEM(r->given, -1 - i);
}

/* (entry, slot) of an operand that is on the tape. */
static PyObject *parent_at(Replay *r, PyObject *place) {
    if (place == Py_None) return new(place);
    Py_ssize_t i = PyLong_AsSsize_t(place);
    if (i >= 0) return PyTuple_Pack(2, r->entries[i], zero);
    PyObject *x = PyTuple_GET_ITEM(r->tensors, -1 - i), *parent = NULL;
    PyObject *entry = PyObject_GetAttr(x, s_tape_entry), *slot = PyObject_GetAttr(x, s_slot);
    if (entry && slot) parent = PyTuple_Pack(2, entry, slot);
    Py_XDECREF(entry);
    Py_XDECREF(slot);
    return parent;
}

/* The entry on the tape of the call that was just made; `about` is a ReplayedEntry. */
static PyObject *replay_entry(Replay *r, PyObject *call, PyObject *about, PyObject *node) {
    PyObject *places = FIELD(about, ReplayedEntry_parents), *reads = FIELD(about, ReplayedEntry_saved);
    Py_ssize_t n = PyTuple_GET_SIZE(places);
    PyObject *made = entry_type->tp_alloc(entry_type, 0), *parents = PyTuple_New(n), *saved = PyTuple_New(n);
    if (!made || !parents || !saved) goto failed;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *parent = parent_at(r, PyTuple_GET_ITEM(places, i)), *place = PyTuple_GET_ITEM(reads, i);
        if (!parent) goto failed;
        PyTuple_SET_ITEM(parents, i, parent);
        PyTuple_SET_ITEM(saved, i, new(place == Py_None ? place : payload_at(r, place)));
    }
    PyObject *result = FIELD(about, ReplayedEntry_keeps_result) == Py_True ? node : Py_None;
    if (fill_entry(made, call, parents, saved, result, r->backend)) Py_CLEAR(made);
    return made;
failed:
    Py_XDECREF(made);
    Py_XDECREF(parents);
    Py_XDECREF(saved);
    return NULL;
}

/* Write the event of the call that was just made, and note it on the node. */
static int write_replayed(Replay *r, Events *events, PyObject *begin_ns) {
    PyObject *node = r->nodes[r->made], *entry = r->entries[r->made];
    int64_t seq = PyLong_AsLongLong(now(here.state_dict, s_seq));
    if (seq < 0 && entry) seq = PyLong_AsLongLong(get(entry, CallEntry_at.seq));
    PyObject *event = write_event(events, get(node, Node_at.call), get(node, Node_at.origin), now(here.state_dict, s_thread),
                                  PyLong_AsLongLong(begin_ns), seq, clock_ns);
    if (event) put(node, Node_at.event, event);
    return PyErr_Occurred() ? -1 : 0;
}

/* Count the call that was just made: `counter` is (thread, counts), where counts has [number] by
   (call, origin). */
static int count_replayed(PyObject *counter, PyObject *node) {
    PyObject *counts = PyTuple_GET_ITEM(counter, 1), *thread = now(here.state_dict, s_thread);
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(counter, 0)) != PyLong_AsLongLong(thread)) return 0;
    PyObject *key = PyTuple_Pack(2, get(node, Node_at.call), get(node, Node_at.origin));
    PyObject *count = key ? Py_XNewRef(PyDict_GetItemWithError(counts, key)) : NULL;
    if (count) {
        PyObject *more = PyLong_FromLongLong(PyLong_AsLongLong(PyList_GET_ITEM(count, 0)) + 1);
        if (more) PyList_SetItem(count, 0, more);
    } else if (key && !PyErr_Occurred()) {
        count = Py_BuildValue("[i]", 1);
        if (count) PyDict_SetItem(counts, key, count);
    }
    Py_XDECREF(key);
    Py_XDECREF(count);
    return PyErr_Occurred() ? -1 : 0;
}

/* Tell a watcher of the call that was just made; `result` is made for the first one. */
static int tell_one(Replay *r, PyObject *watcher, PyObject **result, PyObject *begin_ns) {
    PyObject *node = r->nodes[r->made], *entry = r->entries[r->made];
    if (!*result) {
        *result = boxed(node, get(node, Node_at.spec), r->backend);
        if (!*result || (entry && PyObject_SetAttr(*result, s_tape_entry, entry))) return -1;
    }
    PyObject *told = PyObject_CallMethodObjArgs(watcher, s_op, get(node, Node_at.call), *result, begin_ns, NULL);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

static int tell_all(Replay *r, PyObject *watchers, PyObject *begin_ns) {
    PyObject *result = NULL;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(watchers); i++) {
        PyObject *watcher = new(PyList_GET_ITEM(watchers, i)), *replayed = PyObject_GetAttr(watcher, s_replayed);
        if (replayed && Py_IS_TYPE(replayed, events_type)) failed = write_replayed(r, (Events *)replayed, begin_ns);
        else if (replayed && PyTuple_Check(replayed)) failed = count_replayed(replayed, r->nodes[r->made]);
        else failed = !replayed || tell_one(r, watcher, &result, begin_ns);
        Py_XDECREF(replayed);
        Py_DECREF(watcher);
    }
    Py_XDECREF(result);
    return failed;
}

/* Make all calls; `nodes` and `entries` have room for them. */
static int replay(Replay *r) {
    if (look_at_state() || look_at_recorder(r->backend)) return -1;
    PyObject *origin = Py_XNewRef(origin_here()), *function = r->function;
    PyObject *told = new(now(here.state_dict, s_watchers));
    PyObject *watchers = FIELD(told, Watchers_all), *timers = FIELD(told, Watchers_timed);
    int failed = !origin;
    if (!function) function = here.function ? here.function : empty;
    for (Py_ssize_t n = PyTuple_GET_SIZE(r->calls); !failed && r->made < n; r->made++) {
        PyObject *replayed = PyTuple_GET_ITEM(r->calls, r->made);
        PyObject *call = FIELD(replayed, ReplayedCall_call), *places = FIELD(replayed, ReplayedCall_places);
        PyObject *scalar = FIELD(replayed, ReplayedCall_scalar), *about = FIELD(replayed, ReplayedCall_entry);
        PyObject *inputs = PyTuple_New(PyTuple_GET_SIZE(places));
        PyObject *begin_ns = PyList_GET_SIZE(timers) ? PyObject_CallNoArgs(clock_ns) : new(zero);
        failed = 1;
        if (!inputs || !begin_ns) { Py_XDECREF(inputs); Py_XDECREF(begin_ns); break; }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++)
            PyTuple_SET_ITEM(inputs, i, new(payload_at(r, PyTuple_GET_ITEM(places, i))));
        PyObject *node = append_node(call, inputs, scalar == Py_Ellipsis ? r->scalar : scalar, origin, function);
        if (!node) { Py_DECREF(begin_ns); break; }
        r->nodes[r->made] = node, r->entries[r->made] = NULL;
        failed = r->tensors && about != Py_None && !(r->entries[r->made] = replay_entry(r, call, about, node));
        failed = failed || (PyList_GET_SIZE(watchers) && tell_all(r, watchers, begin_ns));
        Py_DECREF(begin_ns);
    }
    Py_XDECREF(origin);
    Py_DECREF(told);
    return failed ? -1 : cut_if_full(r->backend);
}

static void end_replay(Replay *r) {
    while (r->made) {
        Py_DECREF(r->nodes[--r->made]);
        Py_XDECREF(r->entries[r->made]);
    }
}

/* Whether capture traces: then scalars and constants are recorded in capture's own ways. */
static int is_traced(void) {
    return now(here.state_dict, s_values_hidden) != Py_False || now(here.recorder_dict, s_varying) != Py_False ||
           now(here.recorder_dict, s_imported) != Py_None;
}

/* Arguments of the rules of a call: its cotangent, its result, its operands, as payloads; and, as a
   number, which operands are tracked and which payloads are one. NULL without an error where a payload
   is none of ours: what the tape saved is packed. */
static PyObject *given_to_rules(PyObject *entry, PyObject *g, PyObject **key) {
    PyObject *saved = get(entry, CallEntry_at.saved), *parents = get(entry, CallEntry_at.parents);
    PyObject *payload = PyObject_GetAttr(g, s_payload), *result = PyTuple_GET_ITEM(get(entry, CallEntry_at.saved_out), 0);
    Py_ssize_t n = 2 + PyTuple_GET_SIZE(saved), bit = MOST_TENSORS;
    PyObject *given = payload ? PyTuple_New(n) : NULL;
    if (!given) { Py_XDECREF(payload); return NULL; }
    PyTuple_SET_ITEM(given, 0, payload);
    PyTuple_SET_ITEM(given, 1, new(result));
    uint64_t bits = 0;
    for (Py_ssize_t i = 2; i < n; i++) {
        PyTuple_SET_ITEM(given, i, new(PyTuple_GET_ITEM(saved, i - 2)));
        bits |= (uint64_t)(PyTuple_GET_ITEM(parents, i - 2) != Py_None) << (i - 2);
    }
    int ours = 1;
    for (Py_ssize_t i = 1; i < n; i++) {
        PyObject *x = PyTuple_GET_ITEM(given, i);
        if (x == Py_None) { bit += i; continue; }
        ours = ours && Py_IS_TYPE(x, node_type);
        for (Py_ssize_t j = 0; j < i; j++, bit++)
            if (x == PyTuple_GET_ITEM(given, j)) bits |= (uint64_t)1 << bit;
    }
    if (!ours || !(*key = PyLong_FromUnsignedLongLong(bits))) Py_CLEAR(given);
    return given;
}

/* [(parent, cotangent)] of an entry whose rules' calls are replayed: `made` is a ReplayedPull, `g` the
   cotangent that came. */
static PyObject *replay_pull(PyObject *entry, PyObject *g, PyObject *backend, PyObject *made, PyObject *given) {
    PyObject *calls = FIELD(made, ReplayedPull_calls), *places = FIELD(made, ReplayedPull_places), *results = NULL;
    PyObject *parents = FIELD(made, ReplayedPull_parents), *specs = FIELD(made, ReplayedPull_specs);
    PyObject *same_as = FIELD(made, ReplayedPull_same_as);
    Py_ssize_t n = PyTuple_GET_SIZE(calls);
    PyObject *nodes[n + 1], *entries[n + 1];
    Replay r = {.backend = backend, .calls = calls, .given = given, .nodes = nodes, .entries = entries};
    if (!replay(&r)) results = PyList_New(PyTuple_GET_SIZE(places));
    for (Py_ssize_t i = 0; results && i < PyTuple_GET_SIZE(places); i++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(parents, i));
        PyObject *parent = PyTuple_GET_ITEM(get(entry, CallEntry_at.parents), number);
        Py_ssize_t same = PyLong_AsSsize_t(PyTuple_GET_ITEM(same_as, i));
        PyObject *x;
        if (same < 0) x = new(g);
        else if (same < i) x = new(PyTuple_GET_ITEM(PyList_GET_ITEM(results, same), 1));
        else x = boxed(payload_at(&r, PyTuple_GET_ITEM(places, i)), PyTuple_GET_ITEM(specs, i), backend);
        PyObject *pair = x ? PyTuple_Pack(2, parent, x) : NULL;
        Py_XDECREF(x);
        if (!pair) Py_CLEAR(results);
        else PyList_SET_ITEM(results, i, pair);
    }
    end_replay(&r);
    return results;
}

/* Whether the cotangent is as the call's result, and nothing else is in force than when the calls of
   rules were collected. */
static int is_usual(PyObject *entry, PyObject *g, PyObject *backend) {
    if (backend != get(entry, CallEntry_at.backend) || is_traced()) return 0;
    if (get(entry, CallEntry_at.mode) != Py_None || PyTuple_GET_SIZE(now(here.state_dict, s_modes))) return 0;
    PyObject *spec = PyObject_GetAttr(g, s_spec), *place = PyObject_GetAttr(g, s_backend);
    PyErr_Clear();
    Py_XDECREF(spec);
    Py_XDECREF(place);
    return place == backend && spec == get(get(entry, CallEntry_at.call), Call_at.out);
}

/* pull(entry, cotangents, create_graph) -> [(parent, cotangent)], or None where the rules have to run. */
static PyObject *pull(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "pull: expected 3 arguments; got %zd.", count);
    PyObject *entry = in[0], *replays = NULL, *key = NULL, *given = NULL, *result = NULL;
    if (!Py_IS_TYPE(entry, entry_type) || PyTuple_GET_SIZE(get(entry, CallEntry_at.saved)) > MOST_TENSORS ||
        in[2] != Py_False)
        Py_RETURN_NONE;
    PyObject *g = PyDict_GetItemWithError(in[1], zero), *backend = recording_backend(&replays);
    if (!backend || !g || !is_usual(entry, g, backend) || !(given = given_to_rules(entry, g, &key))) {
        if (!PyErr_Occurred()) result = new(Py_None);
        goto done;
    }
    PyObject *made = Py_XNewRef(PyDict_GetItemWithError(get(get(entry, CallEntry_at.call), Call_at.pulls), key));
    if (!made && !PyErr_Occurred())
        result = PyObject_CallFunctionObjArgs(collect_pull, entry, g, given, key, NULL);
    else if (made)
        result = PyTuple_GET_SIZE(made) ? replay_pull(entry, g, backend, made, given) : new(Py_None);
    Py_XDECREF(made);
done:
    Py_XDECREF(replays);
    Py_XDECREF(backend);
    Py_XDECREF(given);
    Py_XDECREF(key);
    return result;
}

/* ---------------------------------------------------------------- composed functions */

/* A call, of a composed function or a primitive: the parts of its key, owned, and its tensors. */
typedef struct {
    PyObject *backend, *replays, *items[MOST_ITEMS], *scalar;
    PyObject *tensors[MOST_TENSORS], *entries[MOST_TENSORS], *payloads[MOST_TENSORS];
    PyObject *function; /* the name of a composed function that none is around; borrowed */
    Py_ssize_t size, count; /* of items, of tensors */
    int takes_scalars;
} Request;

static int add_item(Request *r, PyObject *item) { /* takes it */
    if (!item) return -1;
    if (r->size == MOST_ITEMS) { Py_DECREF(item); return 0; }
    r->items[r->size++] = item;
    return 1;
}

/* Scalars that rewriting rules know, as STATIC_SCALARS of dispatch/call.py. */
static int is_static(double x) {
    return (x == floor(x) && x >= -4 && x <= 16) || x == 0.5 || isinf(x) || isnan(x);
}

static int is_plain(PyObject *x) { /* of integers, strings, None and tuples of them */
    if (x == Py_None || PyLong_CheckExact(x) || PyUnicode_CheckExact(x)) return 1;
    if (!PyTuple_CheckExact(x)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++)
        if (!is_plain(PyTuple_GET_ITEM(x, i))) return 0;
    return 1;
}

/* How a tensor is the same as an earlier one: the handle 1, its payload 2, its place on the tape 4. */
static int same_as(Request *r, Py_ssize_t i, PyObject *x, PyObject *payload, PyObject *entry) {
    PyObject *before = r->tensors[i];
    int same = (before == x) | (r->payloads[i] == payload) << 1;
    if (entry == Py_None || r->entries[i] != entry) return same;
    PyObject *slot = PyObject_GetAttr(x, s_slot), *earlier = PyObject_GetAttr(before, s_slot);
    Py_XDECREF(slot);
    Py_XDECREF(earlier);
    return slot && slot == earlier ? same | 4 : same;
}

static int add_tensor(Request *r, PyObject *x) {
    if (r->count == MOST_TENSORS) return 0;
    PyObject *backend = PyObject_GetAttr(x, s_backend), *mode = PyObject_GetAttr(x, s_mode);
    Py_XDECREF(backend);
    Py_XDECREF(mode);
    if (!backend || !mode) return -1;
    if (backend != r->backend || mode != Py_None) return 0;
    PyObject *entry = PyObject_GetAttr(x, s_tape_entry), *payload = entry ? PyObject_GetAttr(x, s_payload) : NULL;
    Py_XDECREF(entry);
    if (!payload) return -1;
    for (Py_ssize_t i = 0; i < r->count; i++) {
        int same = same_as(r, i, x, payload, entry);
        if (same && (add_item(r, new(Py_Ellipsis)) <= 0 || add_item(r, PyLong_FromSsize_t(8 * i + same)) <= 0)) {
            Py_DECREF(payload);
            return 0;
        }
    }
    r->tensors[r->count] = x, r->entries[r->count] = entry, r->payloads[r->count++] = payload;
    int added = add_item(r, PyObject_GetAttr(x, s_spec));
    return added > 0 ? add_item(r, PyBool_FromLong(entry != Py_None)) : added;
}

/* Add an argument to the key. 1: done; 0: it is none of those that a key can hold; -1: an error. */
static int add_argument(Request *r, PyObject *x) {
    if (PyObject_TypeCheck(x, tensor_type)) return add_tensor(r, x);
    if (PyFloat_CheckExact(x)) {
        double value = PyFloat_AS_DOUBLE(x);
        PyObject *packed = PyBytes_FromStringAndSize((char *)&value, sizeof value);
        if (!packed || !r->takes_scalars || is_static(value)) return add_item(r, packed);
        if (r->scalar) { Py_DECREF(packed); return 0; }
        r->scalar = packed;
        return add_item(r, new((PyObject *)&PyFloat_Type));
    }
    if (PyBool_Check(x)) return add_item(r, new((PyObject *)&PyBool_Type)) > 0 ? add_item(r, new(x)) : 0;
    if (Py_IS_TYPE(x, dtype_type)) {
        int added = add_item(r, new((PyObject *)dtype_type));
        return added > 0 ? add_item(r, PyObject_GetAttr(x, s_name)) : added;
    }
    return is_plain(x) ? add_item(r, new(x)) : 0;
}

/* Further parts of a key: the modes, if a key can hold them, and whether the tape records. */
static int add_state(Request *r) {
    PyObject *modes = now(here.state_dict, s_modes);
    if (is_traced() || PyTuple_GET_SIZE(modes) > 1) return 0;
    PyObject *key = PyTuple_GET_SIZE(modes) ? PyObject_GetAttr(PyTuple_GET_ITEM(modes, 0), s_key) : new(Py_False);
    int has = key && key != Py_None, added = add_item(r, key);
    if (added <= 0 || !has) return added < 0 ? -1 : 0;
    return add_item(r, new(now(here.state_dict, s_records)));
}

static int add_named(Request *r, PyObject *named) {
    int added = PyDict_GET_SIZE(named) ? add_item(r, new(Py_Ellipsis)) : 1; /* a name is no argument */
    PyObject *name, *value;
    for (Py_ssize_t next = 0; added > 0 && PyDict_Next(named, &next, &name, &value);)
        if ((added = add_item(r, new(name))) > 0) added = add_argument(r, value);
    return added;
}

static int read_request(Request *r, PyObject *what, PyObject *args, PyObject *named) {
    if (!(r->backend = recording_backend(&r->replays))) return PyErr_Occurred() ? -1 : 0;
    r->takes_scalars = PyTuple_GET_ITEM(what, 1) == Py_True;
    int added = add_item(r, new(PyTuple_GET_ITEM(what, 0)));
    if (added > 0) added = add_state(r);
    for (Py_ssize_t i = 0; added > 0 && i < PyTuple_GET_SIZE(args); i++)
        added = add_argument(r, PyTuple_GET_ITEM(args, i));
    if (added > 0) added = add_named(r, named);
    return added <= 0 ? added : r->count > 0;
}

/* The results of a composed function: one, or a tuple of them; `places` has (place, whether it is
   tracked). */
static PyObject *results_of(Replay *r, PyObject *places, PyObject *is_single) {
    PyObject *results = PyTuple_New(PyTuple_GET_SIZE(places));
    for (Py_ssize_t i = 0; results && i < PyTuple_GET_SIZE(places); i++) {
        PyObject *pair = PyTuple_GET_ITEM(places, i), *result, *entry;
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0));
        if (place < 0)
            result = new(PyTuple_GET_ITEM(r->tensors, -1 - place));
        else {
            result = boxed(r->nodes[place], get(r->nodes[place], Node_at.spec), r->backend);
            entry = PyTuple_GET_ITEM(pair, 1) == Py_True ? r->entries[place] : NULL;
            if (result && entry && (PyObject_SetAttr(result, s_tape_entry, entry) || PyObject_SetAttr(result, s_slot, zero)))
                Py_CLEAR(result);
        }
        if (!result) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, result);
    }
    if (results && is_single == Py_True) Py_SETREF(results, new(PyTuple_GET_ITEM(results, 0)));
    return results;
}

static PyObject *tuple_of(PyObject **items, Py_ssize_t n) {
    PyObject *made = PyTuple_New(n);
    for (Py_ssize_t i = 0; made && i < n; i++) PyTuple_SET_ITEM(made, i, new(items[i]));
    return made;
}

/* The result of a composed function: `made` is a ReplayedFunction. */
static PyObject *replay_function(Request *q, PyObject *made) {
    PyObject *calls = FIELD(made, ReplayedFunction_calls), *results = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(calls);
    PyObject *nodes[n + 1], *entries[n + 1];
    Replay r = {.backend = q->backend, .calls = calls, .scalar = q->scalar, .nodes = nodes, .entries = entries, .function = q->function};
    r.given = tuple_of(q->payloads, q->count), r.tensors = tuple_of(q->tensors, q->count);
    if (r.given && r.tensors && !replay(&r))
        results = results_of(&r, FIELD(made, ReplayedFunction_results), FIELD(made, ReplayedFunction_is_single));
    end_replay(&r);
    Py_XDECREF(r.given);
    Py_XDECREF(r.tensors);
    return results;
}

/* Whether Python must tell watchers, call by call. */
static int is_told_by_python(PyObject *made) {
    PyObject *watchers = FIELD(now(here.state_dict, s_watchers), Watchers_all);
    return FIELD(made, ReplayedFunction_has_several) == Py_True && PyList_GET_SIZE(watchers) > 0;
}

/* From now on, Python's calls note this function; `empty`: none. */
static void name_function(PyObject *name) {
    here.function = name == empty ? NULL : name;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (PyDict_SetItem(here.state_dict, s_function, name)) PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

/* The call replayed, if that can be (`usual`: it has a key); else fn(*args, **named), whose calls are
   collected the first time. */
static PyObject *replay_or_run(Request *r, int usual, PyObject *fn, PyObject *args, PyObject *named) {
    PyObject *result = NULL, *key = NULL, *made = NULL, *tensors = NULL;
    if (usual < 0 || (usual && !(key = tuple_of(r->items, r->size)))) goto done;
    made = key ? Py_XNewRef(PyDict_GetItemWithError(r->replays, key)) : NULL;
    if (made && made != Py_None && !is_told_by_python(made)) {
        result = replay_function(r, made);
        goto done;
    }
    if (PyErr_Occurred()) goto done;
    if (r->function && look_at_state()) goto done;
    if (r->function) name_function(r->function);
    if (!key || made)
        result = PyObject_Call(fn, args, named);
    else if ((tensors = tuple_of(r->tensors, r->count)))
        result = PyObject_CallFunctionObjArgs(collect_function, fn, args, named, r->backend, key, tensors,
                                              r->scalar ? r->scalar : Py_None, NULL);
    if (r->function) name_function(empty);
done:
    while (r->size) Py_DECREF(r->items[--r->size]);
    while (r->count) Py_DECREF(r->payloads[--r->count]);
    Py_XDECREF(r->backend);
    Py_XDECREF(r->replays);
    Py_XDECREF(r->scalar);
    Py_XDECREF(key);
    Py_XDECREF(made);
    Py_XDECREF(tensors);
    return result;
}

/* compose((function, whether a float becomes a scalar, name), args, named) -> function(*args, **named),
   whose calls note its name, if it runs within no other. */
static PyObject *compose(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "compose: expected 3 arguments; got %zd.", count);
    Request r = {.size = 0, .function = here.function ? NULL : PyTuple_GET_ITEM(in[0], 2)};
    return replay_or_run(&r, read_request(&r, in[0], in[1], in[2]), PyTuple_GET_ITEM(in[0], 0), in[1], in[2]);
}

/* The key of a primitive's call, whose operands are tensors. */
static int read_call(Request *r, PyObject *primitive, PyObject *args, PyObject *attrs) {
    if (!PyTuple_CheckExact(args) || !PyDict_CheckExact(attrs) || !PyTuple_GET_SIZE(args)) return 0;
    if (!(r->backend = recording_backend(&r->replays))) return PyErr_Occurred() ? -1 : 0;
    if (is_traced()) return 0;
    int added = add_item(r, new(primitive));
    if (added > 0) added = add_item(r, new(now(here.state_dict, s_records)));
    for (Py_ssize_t i = 0; added > 0 && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *x = PyTuple_GET_ITEM(args, i);
        added = PyObject_TypeCheck(x, tensor_type) ? add_tensor(r, x) : 0;
    }
    return added > 0 ? add_named(r, attrs) : added;
}

/* run(primitive, args, attrs) -> the result, as dispatch/bind.py gives it. */
static PyObject *run(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "run: expected 3 arguments; got %zd.", count);
    Request r = {.size = 0};
    int usual = read_call(&r, in[0], in[1], in[2]);
    PyObject *args = tuple_of((PyObject **)in, 3), *named = args ? PyDict_New() : NULL, *result = NULL;
    if (named) result = replay_or_run(&r, usual, run_in_python, args, named);
    Py_XDECREF(args);
    Py_XDECREF(named);
    return result;
}

/* ---------------------------------------------------------------- what was recorded */

static inline int waits(PyObject *node) { return get(node, Node_at.value) == Py_None; }
static inline Py_ssize_t number_of(PyObject *node) { return PyLong_AsSsize_t(get(node, Node_at.number)); }
static int set_number(PyObject *node, Py_ssize_t i) {
    PyObject *before = get(node, Node_at.number), *number = PyLong_FromSsize_t(i);
    if (!number) return -1;
    put(node, Node_at.number, number);
    Py_XDECREF(before);
    return 0;
}

/* Number the nodes and count their uses among each other; 0 if an operand
   waits elsewhere: in another thread, or in a list that was taken. */
static int count_uses(PyObject *pending, Py_ssize_t *uses) {
    Py_ssize_t size = PyList_GET_SIZE(pending);
    for (Py_ssize_t i = 0; i < size; i++)
        if (set_number(PyList_GET_ITEM(pending, i), i)) return -1;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *inputs = get(PyList_GET_ITEM(pending, i), Node_at.inputs);
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inputs); j++) {
            PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
            if (!waits(operand)) continue;
            Py_ssize_t at = number_of(operand);
            if (at < 0 || at >= size || PyList_GET_ITEM(pending, at) != operand) return 0;
            uses[at]++;
        }
    }
    return 1;
}

/* Per node 2 if it is referred to from outside (or is wanted: 2 already), 1 if another needs it or it is
   a collective. */
static void mark(PyObject *pending, const Py_ssize_t *uses, char *needed) {
    for (Py_ssize_t i = PyList_GET_SIZE(pending) - 1; i >= 0; i--) {
        PyObject *node = PyList_GET_ITEM(pending, i), *inputs = get(node, Node_at.inputs);
        if (!waits(node)) { needed[i] = 0; continue; }
        if (Py_REFCNT(node) - uses[i] > 1) needed[i] = 2;
        if (!needed[i] && get(get(node, Node_at.call), Call_at.is_collective) == Py_True) needed[i] = 1;
        for (Py_ssize_t j = 0; needed[i] && j < PySequence_Fast_GET_SIZE(inputs); j++) {
            PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
            if (waits(operand) && !needed[number_of(operand)]) needed[number_of(operand)] = 1;
        }
    }
}

/* mark_needed(pending, wanted) -> bytes, one per node; None if an operand waits elsewhere. */
static PyObject *mark_needed(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "mark_needed: expected 2 arguments; got %zd.", count);
    Py_ssize_t size = PyList_GET_SIZE(in[0]), *uses = PyMem_Calloc((size_t)size + 1, sizeof *uses);
    PyObject *marked = PyBytes_FromStringAndSize(NULL, size);
    int sound = uses && marked ? count_uses(in[0], uses) : -1;
    if (sound > 0) {
        char *marks = PyBytes_AS_STRING(marked);
        memset(marks, 0, (size_t)size);
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(in[1]); i++) {
            PyObject *node = PySequence_Fast_GET_ITEM(in[1], i);
            if (waits(node)) marks[number_of(node)] = 2;
        }
        mark(in[0], uses, marks);
    }
    PyMem_Free(uses);
    if (sound <= 0) Py_CLEAR(marked);
    return sound ? marked : new(Py_None);
}

/* The parts of a recording (graph/record.py), in its order. */
enum { KEY, NODES, LEAVES, SCALARS, OUTPUTS, DONATED, PARTS };

static int append_new(PyObject *list, PyObject *item) { /* takes `item` */
    int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* The number of a computed operand among the leaves; -1 on an error. */
static Py_ssize_t leaf_number(PyObject *leaf_numbers, PyObject *leaves, PyObject *operand) {
    PyObject *number = PyDict_GetItemWithError(leaf_numbers, operand);
    if (number) return PyLong_AsSsize_t(number);
    Py_ssize_t next = PyList_GET_SIZE(leaves);
    if (PyErr_Occurred() || !(number = PyLong_FromSsize_t(next))) return -1;
    int failed = PyDict_SetItem(leaf_numbers, operand, number) || PyList_Append(leaves, operand);
    Py_DECREF(number);
    return failed ? -1 : next;
}

/* Add a needed node to the parts; each use of a leaf counts in `uses`. */
static int encode_node(PyObject **parts, PyObject *leaf_numbers, Py_ssize_t *uses, PyObject *node, int is_output) {
    PyObject *inputs = get(node, Node_at.inputs), *scalar = get(node, Node_at.scalar);
    if (PyList_Append(parts[KEY], get(node, Node_at.call))) return -1;
    for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inputs); j++) {
        PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
        Py_ssize_t leaf = waits(operand) ? 0 : leaf_number(leaf_numbers, parts[LEAVES], operand);
        if (leaf < 0) return -1;
        if (!waits(operand)) uses[leaf]++;
        PyObject *place = waits(operand) ? new(get(operand, Node_at.number)) : PyLong_FromSsize_t(-1 - leaf);
        if (append_new(parts[KEY], place)) return -1;
    }
    if (scalar != Py_None && PyList_Append(parts[SCALARS], scalar)) return -1;
    if (set_number(node, PyList_GET_SIZE(parts[NODES]))) return -1;
    /* Of a call with several results, what picks one of them is read, not the call itself. */
    if (is_output && !PyTuple_Check(get(node, Node_at.spec)) &&
        PyList_Append(parts[OUTPUTS], get(node, Node_at.number))) return -1;
    return PyList_Append(parts[NODES], node);
}

/* Whether nobody but the node refers to its array, or to a view of its memory; -1 on an error. */
static int is_unshared(PyObject *node) {
    PyObject *array = get(node, Node_at.value), *memory = PyObject_GetAttr(array, s_base);
    if (!memory) return -1;
    int unshared = Py_REFCNT(array) == 1 && (memory == Py_None || Py_REFCNT(memory) == 2); /* one is `memory` */
    Py_DECREF(memory);
    return unshared;
}

/* The numbers of the leaves whose memory only this recording refers to: the list, and operands. */
static int find_donated(PyObject *donated, PyObject *leaves, const Py_ssize_t *uses) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(leaves); i++) {
        PyObject *leaf = PyList_GET_ITEM(leaves, i);
        if (get(leaf, Node_at.owned) != Py_True || Py_REFCNT(leaf) - uses[i] != 1) continue;
        int unshared = is_unshared(leaf);
        if (unshared < 0 || (unshared && append_new(donated, PyLong_FromSsize_t(i)))) return -1;
    }
    return 0;
}

/* encode(pending, needed) -> the parts of a recording of the needed nodes, as in graph/record.py. */
static PyObject *encode(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "encode: expected 2 arguments; got %zd.", count);
    PyObject *pending = in[0], *parts[PARTS], *leaf_numbers = PyDict_New(), *result = NULL;
    Py_ssize_t size = PyList_GET_SIZE(pending), operands = 0;
    const char *needed = PyBytes_AS_STRING(in[1]);
    int failed = !leaf_numbers;
    for (int i = 0; i < PARTS; i++) failed |= !(parts[i] = PyList_New(0));
    for (Py_ssize_t i = 0; i < size; i++)
        operands += PySequence_Fast_GET_SIZE(get(PyList_GET_ITEM(pending, i), Node_at.inputs));
    Py_ssize_t *uses = PyMem_Calloc((size_t)operands + 1, sizeof *uses);
    failed |= !uses;
    for (Py_ssize_t i = 0; !failed && i < size; i++) {
        PyObject *node = PyList_GET_ITEM(pending, i);
        if (needed[i] && waits(node)) failed = encode_node(parts, leaf_numbers, uses, node, needed[i] == 2);
    }
    if (!failed) failed = append_new(parts[KEY], PyLong_FromLong(-1));
    if (!failed) failed = PyList_SetSlice(parts[KEY], PyList_GET_SIZE(parts[KEY]), PyList_GET_SIZE(parts[KEY]), parts[OUTPUTS]);
    Py_CLEAR(leaf_numbers); /* which refers to each leaf */
    if (!failed) failed = find_donated(parts[DONATED], parts[LEAVES], uses);
    if (!failed) Py_SETREF(parts[KEY], PyList_AsTuple(parts[KEY]));
    if (!failed && parts[KEY]) result = tuple_of(parts, PARTS);
    for (int i = 0; i < PARTS; i++) Py_XDECREF(parts[i]);
    PyMem_Free(uses);
    return result;
}

/* release(nodes): computed, or no longer needed, they let go of their operands. */
static PyObject *release(PyObject *self, PyObject *nodes) {
    (void)self;
    PyObject *empty = PyTuple_New(0);
    for (Py_ssize_t i = 0; empty && i < PyList_GET_SIZE(nodes); i++) {
        PyObject *node = PyList_GET_ITEM(nodes, i), *inputs = get(node, Node_at.inputs);
        put(node, Node_at.inputs, new(empty));
        Py_XDECREF(inputs);
    }
    Py_XDECREF(empty);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the module */

/* Find where the slots of a class lie: `offsets` are those of its declaration. */
static int find_slots(PyTypeObject *type, const char *const *names, size_t count, Py_ssize_t *offsets) {
    for (size_t i = 0; i < count; i++) {
        PyObject *descr = PyObject_GetAttrString((PyObject *)type, names[i]);
        if (!descr) return -1;
        int is_slot = Py_IS_TYPE(descr, &PyMemberDescr_Type);
        if (is_slot) offsets[i] = ((PyMemberDescrObject *)descr)->d_member->offset;
        else PyErr_Format(PyExc_TypeError, "replay: expected %s to be a slot of %s.", names[i], type->tp_name);
        Py_DECREF(descr);
        if (!is_slot) return -1;
    }
    return 0;
}
#define FIND_SLOTS(type, name) \
    find_slots(type, name##_slots, sizeof name##_slots / sizeof *name##_slots, (Py_ssize_t *)&name##_at)

/* setup(**names): the objects that this works on; to be called once. */
static PyObject *setup(PyObject *self, PyObject *args, PyObject *named) {
    (void)self;
    static char *names[] = {"state", "flags", "defaults", "clock_ns", "run_in_python", "collect_function",
                            "collect_pull", "origin_of", "outside", "numbers", "dtype", "tensor", "call", "node", "entry", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOOOOOOOOOOOOO", names, &state, &flags, &defaults, &clock_ns,
            &run_in_python, &collect_function, &collect_pull, &origin_of, &outside, &numbers, &dtype_type, &tensor_type,
            &call_type, &node_type, &entry_type))
        return NULL;
    Py_INCREF(args); /* for as long as the process runs */
    Py_INCREF(named);
    if (FIND_SLOTS(call_type, Call) || FIND_SLOTS(node_type, Node) || FIND_SLOTS(entry_type, CallEntry)) return NULL;
    Py_RETURN_NONE;
}

/* set_limits(nodes, bytes): from where on a recording is cut. */
static PyObject *set_limits(PyObject *self, PyObject *args) {
    (void)self;
    if (!PyArg_ParseTuple(args, "nn", &most_pending, &most_held_bytes)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_limits", set_limits, METH_VARARGS, "From where on a recording is cut."},
    {"setup", (PyCFunction)(void (*)(void))setup, METH_VARARGS | METH_KEYWORDS, "Set the objects that replay works on."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "One call, with no mode left."},
    {"pull", (PyCFunction)(void (*)(void))pull, METH_FASTCALL, "The cotangents of one call."},
    {"compose", (PyCFunction)(void (*)(void))compose, METH_FASTCALL, "A composed function."},
    {"mark_needed", (PyCFunction)(void (*)(void))mark_needed, METH_FASTCALL, "Which nodes are needed."},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL, "The parts of a recording."},
    {"release", release, METH_O, "Let nodes go of their operands."},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "replay", NULL, -1, functions};

PyMODINIT_FUNC PyInit_replay(void) {
#define INTERN(name) s_##name = PyUnicode_InternFromString(#name);
    NAMES(INTERN)
    if (!(zero = PyLong_FromLong(0)) || !(empty = PyUnicode_InternFromString(""))) return NULL;
    PyObject *made = PyModule_Create(&module);
    events_type = (PyTypeObject *)PyType_FromSpec(&events_spec);
    if (!made || !events_type || PyModule_AddObjectRef(made, "events", (PyObject *)events_type)) return NULL;
    return made;
}
