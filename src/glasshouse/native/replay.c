/* The door in C: what dispatch/bind.py, compile/recording.py and autograd/tape.py do with a call that
   was seen before, and the same again for a rule whose calls are known.

   A call is known by its primitive, the specs of its operands and its attrs. What is not known, or is
   not the common case (another backend, a replaced primitive, several results, values of a
   transform), goes to `slow`, the door in Python; `learn` notes what it did, to be done here next
   time. Objects of Python's classes with slots are filled in place. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <structmember.h>

#include "events.h"

enum {
    MOST = 8,  /* tensors among the arguments of a known call */
    ITEMS = 48 /* parts of its key */
};

/* Given once, by `setup`. */
static PyObject *state, *flags, *defaults, *watchers, *timers, *clock_ns, *slow, *learn, *run_rules, *numbers, *zero;
static PyTypeObject *dtype_type, *tensor_type, *lazy_type, *node_type;
static Py_ssize_t most_pending, most_held_bytes;

#define NAMES(X) X(spec) X(payload) X(backend) X(node) X(slot) X(mode) X(known) X(recorder) X(replaced) X(seq) X(thread) X(writer) \
    X(verify) X(evaluate) X(pending) X(held_bytes) X(records) X(scope) X(phase) X(op) \
    X(key) X(name) X(modes) X(values_hidden) X(varying) X(imported) X(saved_hooks) X(__dict__)
#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)

/* Where the slots of Lazy and of the tape's Node lie. */
static struct { Py_ssize_t signature, inputs, spec, value, scalar, owned, index, scope, phase, event; } lazy;
static struct {
    Py_ssize_t primitive, attrs, parents, specs, saved, out_specs, saved_out, backend, mode, seq, freed,
        grad_hooks, scope, known, mask;
} tape;

static inline void put(PyObject *o, Py_ssize_t offset, PyObject *value) {
    *(PyObject **)((char *)o + offset) = value;
}
static inline PyObject *get(PyObject *o, Py_ssize_t offset) { return *(PyObject **)((char *)o + offset); }
static inline PyObject *new(PyObject *o) { return Py_NewRef(o); }

/* ---------------------------------------------------------------- this thread's state */

/* The dicts of this thread's part of `state` and of a recorder: threading.local looks them up anew
   at each attribute. They are borrowed, for they live as long as thread and recorder do. */
static __thread struct { uint64_t thread; PyObject *recorder, *state_dict, *recorder_dict; } here;

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

/* ---------------------------------------------------------------- recording */

/* A node that waits, and is in the list; takes `inputs`. The list is looked up late: the collector of
   garbage, a watcher or a finalizer may have had everything computed, and another list begun. */
static PyObject *waiting(PyObject *signature, PyObject *inputs, PyObject *spec, PyObject *scalar,
                         PyObject *scope, PyObject *phase) {
    PyObject *made = lazy_type->tp_alloc(lazy_type, 0);
    if (!made) { Py_DECREF(inputs); return NULL; }
    put(made, lazy.signature, new(signature));
    put(made, lazy.inputs, inputs);
    put(made, lazy.spec, new(spec));
    put(made, lazy.value, new(Py_None));
    put(made, lazy.scalar, new(scalar));
    put(made, lazy.owned, new(Py_False));
    put(made, lazy.index, PyLong_FromLong(-1));
    put(made, lazy.scope, new(scope));
    put(made, lazy.phase, new(phase));
    if (PyList_Append(now(here.recorder_dict, s_pending), made)) Py_CLEAR(made);
    return made;
}

/* A tensor around a payload. */
static PyObject *boxed(PyObject *data, PyObject *spec, PyObject *backend) {
    PyObject *made = tensor_type->tp_alloc(tensor_type, 0);
    if (made && (PyObject_SetAttr(made, s_payload, data) || PyObject_SetAttr(made, s_spec, spec) ||
                 PyObject_SetAttr(made, s_backend, backend)))
        Py_CLEAR(made);
    return made;
}

/* Fill a new node of the tape; takes `parents` and `saved`. */
static int fill(PyObject *made, PyObject *primitive, PyObject *attrs, PyObject *parents, PyObject *specs,
                PyObject *saved, PyObject *spec, PyObject *saved_out, PyObject *backend, PyObject *scope,
                PyObject *known, PyObject *mask) {
    PyObject *specs_out = PyList_New(1), *results = PyList_New(1), *seq = PyIter_Next(numbers);
    put(made, tape.parents, parents);
    put(made, tape.saved, saved);
    put(made, tape.out_specs, specs_out);
    put(made, tape.saved_out, results);
    put(made, tape.seq, seq);
    if (!specs_out || !results || !seq) return -1;
    PyList_SET_ITEM(specs_out, 0, new(spec));
    PyList_SET_ITEM(results, 0, new(saved_out));
    put(made, tape.primitive, new(primitive));
    put(made, tape.attrs, new(attrs));
    put(made, tape.specs, new(specs));
    put(made, tape.backend, new(backend));
    put(made, tape.mode, new(Py_None));
    put(made, tape.freed, new(Py_False));
    put(made, tape.grad_hooks, new(Py_None));
    put(made, tape.scope, new(scope));
    put(made, tape.known, new(known));
    put(made, tape.mask, new(mask));
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

/* The backend that computes here, if it records, and calls that were seen may be recorded at once:
   nothing is replaced or verified. NULL without an error if not. */
static PyObject *recording_backend(PyObject **memo) {
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
    *memo = PyObject_GetAttr(backend, s_known);
    PyObject *replaced = *memo && *memo != Py_None ? PyObject_GetAttr(backend, s_replaced) : NULL;
    int usable = replaced && !PyDict_GET_SIZE(replaced) && !look_at_recorder(backend);
    Py_XDECREF(replaced);
    if (!usable) {
        Py_CLEAR(*memo);
        Py_CLEAR(backend);
    }
    return backend;
}

/* ---------------------------------------------------------------- the same calls again */

/* The calls of a template (compile/replay.py) that are being made: place i is the i-th of them, place
   -1 - i the i-th payload or tensor that is given. */
typedef struct {
    PyObject *backend, *calls, *given, *tensors, *scalar; /* `tensors`: NULL where nothing is tracked */
    PyObject **nodes, **tape;                             /* by call: the payload, its place on the tape */
    Py_ssize_t made;
} Replay;

static inline PyObject *payload_at(Replay *r, PyObject *place) {
    Py_ssize_t i = PyLong_AsSsize_t(place);
    return i >= 0 ? r->nodes[i] : PyTuple_GET_ITEM(r->given, -1 - i);
}

/* (node, slot) of an operand that is on the tape. */
static PyObject *parent_at(Replay *r, PyObject *place) {
    if (place == Py_None) return new(place);
    Py_ssize_t i = PyLong_AsSsize_t(place);
    if (i >= 0) return Py_BuildValue("(Oi)", r->tape[i], 0);
    PyObject *x = PyTuple_GET_ITEM(r->tensors, -1 - i), *found = NULL;
    PyObject *node = PyObject_GetAttr(x, s_node), *slot = PyObject_GetAttr(x, s_slot);
    if (node && slot) found = PyTuple_Pack(2, node, slot);
    Py_XDECREF(node);
    Py_XDECREF(slot);
    return found;
}

/* The place on the tape of the call that was just made: `about` is (parents, saved, keeps its result,
   known, mask). */
static PyObject *tape_again(Replay *r, PyObject **call, PyObject *about, PyObject *out, PyObject *scope) {
    PyObject *places = PyTuple_GET_ITEM(about, 0), *kept = PyTuple_GET_ITEM(about, 1);
    Py_ssize_t n = PyTuple_GET_SIZE(places);
    PyObject *made = node_type->tp_alloc(node_type, 0), *parents = PyTuple_New(n), *saved = PyTuple_New(n);
    if (!made || !parents || !saved) goto failed;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *parent = parent_at(r, PyTuple_GET_ITEM(places, i)), *place = PyTuple_GET_ITEM(kept, i);
        if (!parent) goto failed;
        PyTuple_SET_ITEM(parents, i, parent);
        PyTuple_SET_ITEM(saved, i, new(place == Py_None ? place : payload_at(r, place)));
    }
    if (fill(made, call[4], call[6], parents, call[5], saved, call[2],
             PyTuple_GET_ITEM(about, 2) == Py_True ? out : Py_None, r->backend, scope,
             PyTuple_GET_ITEM(about, 3), PyTuple_GET_ITEM(about, 4)))
        Py_CLEAR(made);
    return made;
failed:
    Py_XDECREF(made);
    Py_XDECREF(parents);
    Py_XDECREF(saved);
    return NULL;
}

/* Write the event of the call that was just made, and note it on the node. */
static int write_again(Replay *r, Events *events, PyObject *template, PyObject *begin_ns) {
    PyObject *by[] = {template, now(here.state_dict, s_scope), now(here.state_dict, s_phase)};
    PyObject *node = r->tape[r->made], *seq = now(here.state_dict, s_seq);
    int64_t number = PyLong_AsLongLong(seq);
    if (number < 0 && node) number = PyLong_AsLongLong(get(node, tape.seq));
    PyObject *event = write_event(events, by, now(here.state_dict, s_thread), PyLong_AsLongLong(begin_ns), number, clock_ns);
    if (event) put(r->nodes[r->made], lazy.event, event);
    return PyErr_Occurred() ? -1 : 0;
}

/* Count the call that was just made. The writer is (thread, counts, new): counts has lists that begin
   with a number by (address of the call, scope, phase), and new(call, scope, phase) makes one. */
static int count_again(PyObject *writer, PyObject *template) {
    PyObject *scope = now(here.state_dict, s_scope), *phase = now(here.state_dict, s_phase);
    PyObject *counts = PyTuple_GET_ITEM(writer, 1), *thread = now(here.state_dict, s_thread);
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(writer, 0)) != PyLong_AsLongLong(thread)) return 0;
    PyObject *key = Py_BuildValue("(nOO)", (Py_ssize_t)template, scope, phase);
    PyObject *found = key ? Py_XNewRef(PyDict_GetItemWithError(counts, key)) : NULL;
    if (found) {
        PyObject *more = PyLong_FromLongLong(PyLong_AsLongLong(PyList_GET_ITEM(found, 0)) + 1);
        if (more) PyList_SetItem(found, 0, more);
    } else if (key && !PyErr_Occurred()) {
        found = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(writer, 2), template, scope, phase, NULL);
        if (found) PyDict_SetItem(counts, key, found);
    }
    Py_XDECREF(key);
    Py_XDECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

/* Tell a watcher of the call that was just made; `result` is made for the first that is told. */
static int tell_one(Replay *r, PyObject *watcher, PyObject **call, PyObject **result, PyObject *begin_ns) {
    PyObject *node = r->tape[r->made];
    if (!*result) {
        *result = boxed(r->nodes[r->made], call[2], r->backend);
        if (!*result || (node && PyObject_SetAttr(*result, s_node, node))) return -1;
    }
    PyObject *told = PyObject_CallMethodObjArgs(watcher, s_op, call[4], call[5], call[6], call[2], *result, begin_ns, NULL);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

static int tell_again(Replay *r, PyObject *template, PyObject *begin_ns) {
    PyObject *result = NULL;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(watchers); i++) {
        PyObject *watcher = new(PyList_GET_ITEM(watchers, i)), *writer = PyObject_GetAttr(watcher, s_writer);
        if (writer && Py_IS_TYPE(writer, events_type)) failed = write_again(r, (Events *)writer, template, begin_ns);
        else if (writer && PyTuple_Check(writer)) failed = count_again(writer, template);
        else failed = !writer || tell_one(r, watcher, &PyTuple_GET_ITEM(template, 0), &result, begin_ns);
        Py_XDECREF(writer);
        Py_DECREF(watcher);
    }
    Py_XDECREF(result);
    return failed;
}

/* Make all calls; `nodes` and `tape` have room for them. */
static int replay(Replay *r) {
    if (look_at_state() || look_at_recorder(r->backend)) return -1;
    PyObject *scope = now(here.state_dict, s_scope), *phase = now(here.state_dict, s_phase);
    for (Py_ssize_t n = PyTuple_GET_SIZE(r->calls); r->made < n; r->made++) {
        PyObject *template = PyTuple_GET_ITEM(r->calls, r->made), **call = &PyTuple_GET_ITEM(template, 0), *places = call[1];
        PyObject *inputs = PyTuple_New(PyTuple_GET_SIZE(places));
        PyObject *begin_ns = PyList_GET_SIZE(timers) ? PyObject_CallNoArgs(clock_ns) : new(zero);
        if (!inputs || !begin_ns) { Py_XDECREF(inputs); return -1; }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++)
            PyTuple_SET_ITEM(inputs, i, new(payload_at(r, PyTuple_GET_ITEM(places, i))));
        PyObject *scalar = call[3] == Py_Ellipsis ? r->scalar : call[3];
        PyObject *out = waiting(call[0], inputs, call[2], scalar, scope, phase);
        if (!out) { Py_DECREF(begin_ns); return -1; }
        r->nodes[r->made] = out, r->tape[r->made] = NULL;
        int failed = r->tensors && call[7] != Py_None &&
                     !(r->tape[r->made] = tape_again(r, call, call[7], out, scope));
        failed = failed || (PyList_GET_SIZE(watchers) && tell_again(r, template, begin_ns));
        Py_DECREF(begin_ns);
        if (failed) { r->made++; return -1; }
    }
    return cut_if_full(r->backend);
}

static void end_replay(Replay *r) {
    while (r->made) {
        Py_DECREF(r->nodes[--r->made]);
        Py_XDECREF(r->tape[r->made]);
    }
}

/* Whether capture traces: then scalars and constants are recorded in ways of its own. */
static int is_traced(void) {
    return now(here.state_dict, s_values_hidden) != Py_False || now(here.recorder_dict, s_varying) != Py_False ||
           now(here.recorder_dict, s_imported) != Py_None;
}

/* What the rules of a call are given: its cotangent, its result, its operands, as payloads; and, as a
   number, which operands are tracked and which payloads are one. */
static PyObject *given_to_rules(PyObject *node, PyObject *g, PyObject **key) {
    PyObject *saved = get(node, tape.saved), *data = PyObject_GetAttr(g, s_payload);
    Py_ssize_t n = 2 + PyTuple_GET_SIZE(saved), bit = MOST;
    PyObject *given = data ? PyTuple_New(n) : NULL;
    if (!given) { Py_XDECREF(data); return NULL; }
    PyTuple_SET_ITEM(given, 0, data);
    PyTuple_SET_ITEM(given, 1, new(PyList_GET_ITEM(get(node, tape.saved_out), 0)));
    for (Py_ssize_t i = 2; i < n; i++) PyTuple_SET_ITEM(given, i, new(PyTuple_GET_ITEM(saved, i - 2)));
    uint64_t bits = (uint64_t)PyLong_AsLong(get(node, tape.mask));
    for (Py_ssize_t i = 1; i < n; i++)
        for (Py_ssize_t j = 0; j < i; j++, bit++)
            if (PyTuple_GET_ITEM(given, i) != Py_None && PyTuple_GET_ITEM(given, i) == PyTuple_GET_ITEM(given, j))
                bits |= (uint64_t)1 << bit;
    *key = PyLong_FromUnsignedLongLong(bits);
    if (!*key) Py_CLEAR(given);
    return given;
}

/* [(parent, cotangent)] of a node whose rules' calls are known. */
static PyObject *pull_again(PyObject *node, PyObject *backend, PyObject *template, PyObject *given) {
    PyObject *calls = PyTuple_GET_ITEM(template, 0), *places = PyTuple_GET_ITEM(template, 1), *results = NULL;
    PyObject *parents = PyTuple_GET_ITEM(template, 2), *specs = PyTuple_GET_ITEM(template, 3);
    Py_ssize_t n = PyTuple_GET_SIZE(calls);
    PyObject *nodes[n + 1], *on[n + 1];
    Replay r = {.backend = backend, .calls = calls, .given = given, .nodes = nodes, .tape = on};
    if (!replay(&r)) results = PyList_New(PyTuple_GET_SIZE(places));
    for (Py_ssize_t i = 0; results && i < PyTuple_GET_SIZE(places); i++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(parents, i));
        PyObject *parent = PyTuple_GET_ITEM(get(node, tape.parents), number);
        PyObject *data = payload_at(&r, PyTuple_GET_ITEM(places, i));
        PyObject *x = boxed(data, PyTuple_GET_ITEM(specs, i), backend), *pair = x ? PyTuple_Pack(2, parent, x) : NULL;
        Py_XDECREF(x);
        if (!pair) Py_CLEAR(results);
        else PyList_SET_ITEM(results, i, pair);
    }
    end_replay(&r);
    return results;
}

/* Whether the cotangent is as the call's result, and nothing else is in force than when rules were
   seen. */
static int is_usual(PyObject *node, PyObject *g, PyObject *backend) {
    if (backend != get(node, tape.backend) || is_traced()) return 0;
    if (get(node, tape.mode) != Py_None || PyTuple_GET_SIZE(now(here.state_dict, s_modes))) return 0;
    PyObject *spec = PyObject_GetAttr(g, s_spec), *place = PyObject_GetAttr(g, s_backend);
    PyErr_Clear();
    Py_XDECREF(spec);
    Py_XDECREF(place);
    return place == backend && spec == PyList_GET_ITEM(get(node, tape.out_specs), 0);
}

/* pull(node, slots, create_graph) -> [(parent, cotangent)], or None where the rules have to run. */
static PyObject *pull(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "pull: expected 3 arguments; got %zd.", count);
    PyObject *node = in[0], *memo = NULL, *key = NULL, *given = NULL, *result = NULL;
    if (!Py_IS_TYPE(node, node_type) || !PyDict_CheckExact(get(node, tape.known)) ||
        PyTuple_GET_SIZE(get(node, tape.saved)) > MOST || in[2] != Py_False)
        Py_RETURN_NONE;
    PyObject *g = PyDict_GetItemWithError(in[1], zero), *backend = recording_backend(&memo);
    if (!backend || !g || !is_usual(node, g, backend)) {
        if (!PyErr_Occurred()) result = new(Py_None);
        goto done;
    }
    if (!(given = given_to_rules(node, g, &key))) goto done;
    PyObject *template = Py_XNewRef(PyDict_GetItemWithError(get(node, tape.known), key));
    if (!template && !PyErr_Occurred())
        result = PyObject_CallFunctionObjArgs(run_rules, node, g, given, key, NULL);
    else if (template)
        result = PyTuple_GET_SIZE(template) ? pull_again(node, backend, template, given) : new(Py_None);
    Py_XDECREF(template);
done:
    Py_XDECREF(memo);
    Py_XDECREF(backend);
    Py_XDECREF(given);
    Py_XDECREF(key);
    return result;
}

/* ---------------------------------------------------------------- composed functions */

/* A call, of a composed function or a primitive: the parts of its key, owned, and its tensors. */
typedef struct {
    PyObject *backend, *memo, *items[ITEMS], *tensors[MOST], *nodes[MOST], *data[MOST], *scalar;
    Py_ssize_t size, seen;
    int takes_scalars;
} Request;

static int add_item(Request *r, PyObject *item) { /* takes it */
    if (!item) return -1;
    if (r->size == ITEMS) { Py_DECREF(item); return 0; }
    r->items[r->size++] = item;
    return 1;
}

/* Scalars that rewriting rules know, as STATIC_SCALARS of graph/record.py. */
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
static int same_as(Request *r, Py_ssize_t i, PyObject *x, PyObject *data, PyObject *node) {
    PyObject *before = r->tensors[i];
    int same = (before == x) | (r->data[i] == data) << 1;
    if (node == Py_None || r->nodes[i] != node) return same;
    PyObject *slot = PyObject_GetAttr(x, s_slot), *earlier = PyObject_GetAttr(before, s_slot);
    Py_XDECREF(slot);
    Py_XDECREF(earlier);
    return slot && slot == earlier ? same | 4 : same;
}

static int add_tensor(Request *r, PyObject *x) {
    if (r->seen == MOST) return 0;
    PyObject *backend = PyObject_GetAttr(x, s_backend), *mode = PyObject_GetAttr(x, s_mode);
    Py_XDECREF(backend);
    Py_XDECREF(mode);
    if (!backend || !mode) return -1;
    if (backend != r->backend || mode != Py_None) return 0;
    PyObject *node = PyObject_GetAttr(x, s_node), *data = node ? PyObject_GetAttr(x, s_payload) : NULL;
    Py_XDECREF(node);
    if (!data) return -1;
    for (Py_ssize_t i = 0; i < r->seen; i++) {
        int same = same_as(r, i, x, data, node);
        if (same && (add_item(r, new(Py_Ellipsis)) <= 0 || add_item(r, PyLong_FromSsize_t(8 * i + same)) <= 0)) {
            Py_DECREF(data);
            return 0;
        }
    }
    r->tensors[r->seen] = x, r->nodes[r->seen] = node, r->data[r->seen++] = data;
    int added = add_item(r, PyObject_GetAttr(x, s_spec));
    return added > 0 ? add_item(r, PyBool_FromLong(node != Py_None)) : added;
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

/* What else a key has: the modes, if a key can hold them, and whether the tape records. */
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
    if (!(r->backend = recording_backend(&r->memo))) return PyErr_Occurred() ? -1 : 0;
    r->takes_scalars = PyTuple_GET_ITEM(what, 1) == Py_True;
    int added = add_item(r, new(PyTuple_GET_ITEM(what, 0)));
    if (added > 0) added = add_state(r);
    for (Py_ssize_t i = 0; added > 0 && i < PyTuple_GET_SIZE(args); i++)
        added = add_argument(r, PyTuple_GET_ITEM(args, i));
    if (added > 0) added = add_named(r, named);
    return added <= 0 ? added : r->seen > 0;
}

/* The results of a template: one, or a tuple of them; `outs` has (place, whether it is tracked). */
static PyObject *results_of(Replay *r, PyObject *outs, PyObject *single) {
    PyObject *results = PyTuple_New(PyTuple_GET_SIZE(outs));
    for (Py_ssize_t i = 0; results && i < PyTuple_GET_SIZE(outs); i++) {
        PyObject *out = PyTuple_GET_ITEM(outs, i), *result, *node;
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(out, 0));
        if (place < 0)
            result = new(PyTuple_GET_ITEM(r->tensors, -1 - place));
        else {
            PyObject *spec = PyTuple_GET_ITEM(PyTuple_GET_ITEM(r->calls, place), 2);
            result = boxed(r->nodes[place], spec, r->backend);
            node = PyTuple_GET_ITEM(out, 1) == Py_True ? r->tape[place] : NULL;
            if (result && node && (PyObject_SetAttr(result, s_node, node) || PyObject_SetAttr(result, s_slot, zero)))
                Py_CLEAR(result);
        }
        if (!result) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, result);
    }
    if (results && single == Py_True) Py_SETREF(results, new(PyTuple_GET_ITEM(results, 0)));
    return results;
}

static PyObject *tuple_of(PyObject **items, Py_ssize_t n) {
    PyObject *made = PyTuple_New(n);
    for (Py_ssize_t i = 0; made && i < n; i++) PyTuple_SET_ITEM(made, i, new(items[i]));
    return made;
}

/* The calls of a composed function that is known. */
static PyObject *compose_again(Request *q, PyObject *template) {
    PyObject *calls = PyTuple_GET_ITEM(template, 0), *results = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(calls);
    PyObject *nodes[n + 1], *on[n + 1];
    Replay r = {.backend = q->backend, .calls = calls, .scalar = q->scalar, .nodes = nodes, .tape = on};
    r.given = tuple_of(q->data, q->seen), r.tensors = tuple_of(q->tensors, q->seen);
    if (r.given && r.tensors && !replay(&r))
        results = results_of(&r, PyTuple_GET_ITEM(template, 1), PyTuple_GET_ITEM(template, 2));
    end_replay(&r);
    Py_XDECREF(r.given);
    Py_XDECREF(r.tensors);
    return results;
}

/* The call again, if it is known (`usual`: it has a key); else fn(*args, **named), which is noted. */
static PyObject *again_or_new(Request *r, int usual, PyObject *fn, PyObject *args, PyObject *named) {
    PyObject *result = NULL, *key = NULL, *template = NULL, *tensors = NULL;
    if (usual < 0 || (usual && !(key = tuple_of(r->items, r->size)))) goto done;
    template = key ? Py_XNewRef(PyDict_GetItemWithError(r->memo, key)) : NULL;
    if (template && template != Py_None)
        result = compose_again(r, template);
    else if (key && !template && !PyErr_Occurred() && (tensors = tuple_of(r->tensors, r->seen)))
        result = PyObject_CallFunctionObjArgs(learn, fn, args, named, r->backend, key, tensors,
                                              r->scalar ? r->scalar : Py_None, NULL);
    else if (!PyErr_Occurred())
        result = PyObject_Call(fn, args, named);
done:
    while (r->size) Py_DECREF(r->items[--r->size]);
    while (r->seen) Py_DECREF(r->data[--r->seen]);
    Py_XDECREF(r->backend);
    Py_XDECREF(r->memo);
    Py_XDECREF(r->scalar);
    Py_XDECREF(key);
    Py_XDECREF(template);
    Py_XDECREF(tensors);
    return result;
}

/* compose((function, whether a float becomes a scalar), args, named) -> function(*args, **named) */
static PyObject *compose(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "compose: expected 3 arguments; got %zd.", count);
    Request r = {.size = 0};
    return again_or_new(&r, read_request(&r, in[0], in[1], in[2]), PyTuple_GET_ITEM(in[0], 0), in[1], in[2]);
}

/* The key of a primitive's call, whose operands are tensors. */
static int read_call(Request *r, PyObject *primitive, PyObject *args, PyObject *attrs) {
    if (!PyTuple_CheckExact(args) || !PyDict_CheckExact(attrs) || !PyTuple_GET_SIZE(args)) return 0;
    if (!(r->backend = recording_backend(&r->memo))) return PyErr_Occurred() ? -1 : 0;
    if (is_traced()) return 0;
    int added = add_item(r, new(primitive));
    if (added > 0) added = add_item(r, new(now(here.state_dict, s_records)));
    for (Py_ssize_t i = 0; added > 0 && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *x = PyTuple_GET_ITEM(args, i);
        added = PyObject_TypeCheck(x, tensor_type) ? add_tensor(r, x) : 0;
    }
    return added > 0 ? add_named(r, attrs) : added;
}

/* run(primitive, args, attrs) -> the result, as `slow` gives it. */
static PyObject *run(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "run: expected 3 arguments; got %zd.", count);
    Request r = {.size = 0};
    int usual = read_call(&r, in[0], in[1], in[2]);
    PyObject *args = tuple_of((PyObject **)in, 3), *named = args ? PyDict_New() : NULL, *result = NULL;
    if (named) result = again_or_new(&r, usual, slow, args, named);
    Py_XDECREF(args);
    Py_XDECREF(named);
    return result;
}

/* ---------------------------------------------------------------- what was recorded */

static inline int waits(PyObject *node) { return get(node, lazy.value) == Py_None; }
static inline Py_ssize_t index_of(PyObject *node) { return PyLong_AsSsize_t(get(node, lazy.index)); }
static int set_index(PyObject *node, Py_ssize_t i) {
    PyObject *before = get(node, lazy.index), *number = PyLong_FromSsize_t(i);
    if (!number) return -1;
    put(node, lazy.index, number);
    Py_XDECREF(before);
    return 0;
}

/* Number the nodes and count their uses among each other; 0 if an operand
   waits elsewhere: in another thread, or in a list that was taken. */
static int count_uses(PyObject *pending, Py_ssize_t *uses) {
    Py_ssize_t size = PyList_GET_SIZE(pending);
    for (Py_ssize_t i = 0; i < size; i++)
        if (set_index(PyList_GET_ITEM(pending, i), i)) return -1;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *inputs = get(PyList_GET_ITEM(pending, i), lazy.inputs);
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inputs); j++) {
            PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
            if (!waits(operand)) continue;
            Py_ssize_t at = index_of(operand);
            if (at < 0 || at >= size || PyList_GET_ITEM(pending, at) != operand) return 0;
            uses[at]++;
        }
    }
    return 1;
}

/* Per node 2 if it is referred to from outside (or is wanted: 2 already), 1 if another needs it. */
static void mark_needed(PyObject *pending, const Py_ssize_t *uses, char *needed) {
    for (Py_ssize_t i = PyList_GET_SIZE(pending) - 1; i >= 0; i--) {
        PyObject *node = PyList_GET_ITEM(pending, i), *inputs = get(node, lazy.inputs);
        if (!waits(node)) { needed[i] = 0; continue; }
        if (Py_REFCNT(node) - uses[i] > 1) needed[i] = 2;
        for (Py_ssize_t j = 0; needed[i] && j < PySequence_Fast_GET_SIZE(inputs); j++) {
            PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
            if (waits(operand) && !needed[index_of(operand)]) needed[index_of(operand)] = 1;
        }
    }
}

/* needed(pending, wanted) -> bytes, one per node; None if an operand waits elsewhere. */
static PyObject *needed(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "needed: expected 2 arguments; got %zd.", count);
    Py_ssize_t size = PyList_GET_SIZE(in[0]), *uses = PyMem_Calloc((size_t)size + 1, sizeof *uses);
    PyObject *found = PyBytes_FromStringAndSize(NULL, size);
    int sound = uses && found ? count_uses(in[0], uses) : -1;
    if (sound > 0) {
        char *marks = PyBytes_AS_STRING(found);
        memset(marks, 0, (size_t)size);
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(in[1]); i++) {
            PyObject *node = PySequence_Fast_GET_ITEM(in[1], i);
            if (waits(node)) marks[index_of(node)] = 2;
        }
        mark_needed(in[0], uses, marks);
    }
    PyMem_Free(uses);
    if (sound <= 0) Py_CLEAR(found);
    return sound ? found : new(Py_None);
}

/* forget(nodes): computed, or no longer needed, they let go of their operands and modules. */
static PyObject *forget(PyObject *self, PyObject *nodes) {
    (void)self;
    PyObject *empty = PyTuple_New(0);
    for (Py_ssize_t i = 0; empty && i < PyList_GET_SIZE(nodes); i++) {
        PyObject *node = PyList_GET_ITEM(nodes, i);
        PyObject *inputs = get(node, lazy.inputs), *scope = get(node, lazy.scope);
        put(node, lazy.inputs, new(empty));
        put(node, lazy.scope, new(Py_None));
        Py_XDECREF(inputs);
        Py_XDECREF(scope);
    }
    Py_XDECREF(empty);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the module */

static int offset_of(PyTypeObject *type, const char *name, Py_ssize_t *offset) {
    PyObject *descr = PyObject_GetAttrString((PyObject *)type, name);
    if (!descr) return -1;
    int is_slot = Py_IS_TYPE(descr, &PyMemberDescr_Type);
    if (is_slot) *offset = ((PyMemberDescrObject *)descr)->d_member->offset;
    else PyErr_Format(PyExc_TypeError, "replay: expected %s to be a slot of %s.", name, type->tp_name);
    Py_DECREF(descr);
    return is_slot ? 0 : -1;
}

/* setup(**names): the objects that this works on; to be called once. */
static PyObject *setup(PyObject *self, PyObject *args, PyObject *named) {
    (void)self;
    static char *names[] = {"state", "flags", "defaults", "watchers", "timers", "clock_ns", "slow", "learn",
                            "run_rules", "numbers", "dtype", "tensor", "lazy", "node", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOOOOOOOOOOOO", names, &state, &flags, &defaults,
            &watchers, &timers, &clock_ns, &slow, &learn, &run_rules, &numbers, &dtype_type, &tensor_type, &lazy_type, &node_type))
        return NULL;
    PyObject *kept[] = {state, flags, defaults, watchers, timers, clock_ns, slow, learn, run_rules, numbers,
                        (PyObject *)dtype_type, (PyObject *)tensor_type, (PyObject *)lazy_type, (PyObject *)node_type};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) Py_INCREF(kept[i]);
#define FIND(type, where, name) if (offset_of(type, #name, &where.name)) return NULL;
#define LAZY(name) FIND(lazy_type, lazy, name)
#define TAPE(name) FIND(node_type, tape, name)
    LAZY(signature) LAZY(inputs) LAZY(spec) LAZY(value) LAZY(scalar) LAZY(owned) LAZY(index) LAZY(scope)
    LAZY(phase) LAZY(event)
    TAPE(primitive) TAPE(attrs) TAPE(parents) TAPE(specs) TAPE(saved) TAPE(out_specs) TAPE(saved_out)
    TAPE(backend) TAPE(mode) TAPE(seq) TAPE(freed) TAPE(grad_hooks) TAPE(scope) TAPE(known) TAPE(mask)
    Py_RETURN_NONE;
}

/* limits(nodes, bytes): from where on a recording is cut. */
static PyObject *limits(PyObject *self, PyObject *args) {
    (void)self;
    if (!PyArg_ParseTuple(args, "nn", &most_pending, &most_held_bytes)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"limits", limits, METH_VARARGS, "From where on a recording is cut."},
    {"setup", (PyCFunction)(void (*)(void))setup, METH_VARARGS | METH_KEYWORDS, "What this works on."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "One call through the door."},
    {"pull", (PyCFunction)(void (*)(void))pull, METH_FASTCALL, "The calls of a rule once more."},
    {"compose", (PyCFunction)(void (*)(void))compose, METH_FASTCALL, "A composed function."},
    {"needed", (PyCFunction)(void (*)(void))needed, METH_FASTCALL, "Which nodes are needed."},
    {"forget", forget, METH_O, "Let nodes go of their operands."},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "replay", NULL, -1, functions};

PyMODINIT_FUNC PyInit_replay(void) {
#define INTERN(name) s_##name = PyUnicode_InternFromString(#name);
    NAMES(INTERN)
    if (!(zero = PyLong_FromLong(0))) return NULL;
    PyObject *made = PyModule_Create(&module);
    events_type = (PyTypeObject *)PyType_FromSpec(&events_spec);
    if (!made || !events_type || PyModule_AddObjectRef(made, "Events", (PyObject *)events_type)) return NULL;
    return made;
}
