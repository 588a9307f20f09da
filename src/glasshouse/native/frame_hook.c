/* Capture's C: guards, the dispatcher that checks them and calls a replacement, the frame hook.

A guard program is a list of small operations on registers: some read (an argument, an item of an
instance's dict, a cell), some check (a type, an identity, a constant, a tensor's spec). Reads and
checks on one dict form a group, which is passed over while the dict's version tag says that nothing
was written to it since it was last found right (CPython 3.11 and 3.12; later versions have no such
tag that also sees attribute writes, so there every check runs).

An entry is a guard program with the replacement to call where it holds. The dispatcher binds a
call's arguments to the slots of the function's code, in order, with its cells after them, and hands
all of them to the first entry whose guards hold, or to `miss`. Its list has entries, and weak
references to those that something else (a model's parameter) keeps alive.

The hook (PEP 523) is for frames that are entered from code that is not captured. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <structmember.h>
#include "interpreter_frame.h"

#if PY_VERSION_HEX >= 0x030C0000
#define ExtraIndex PyUnstable_Eval_RequestCodeExtraIndex
#define GetExtra PyUnstable_Code_GetExtra
#define SetExtra PyUnstable_Code_SetExtra
#else
#define ExtraIndex _PyEval_RequestCodeExtraIndex
#define GetExtra _PyCode_GetExtra
#define SetExtra _PyCode_SetExtra
#endif
#define HAS_TAGS (PY_VERSION_HEX < 0x030D0000)

/* ---------------------------------------------------------------- guards */

enum {
    ARG, CONST, DICT, GET, ITEM, CELL, ATTR, TYPEOF, LOOKUP, TAG, SETTAG, HANDLED,
    IS = 20, TYPE, EQ, LEN, ABSENT, KEYS, SAME, DISTINCT, CALL, SPEC, KIND, LACKS, IS_WEAK, TYPE_WEAK, UNHOOKED, CODE, NATIVE
};
typedef struct {
    int op, dst, src, jump;
    Py_ssize_t n;
    PyObject *key;
    uint64_t tag;
} Op;

/* A guard whose C another extension has. */
typedef struct {
    PyObject_HEAD
    int (*holds)(PyObject *self, PyObject *value);
} NativeGuard;

typedef struct {
    PyObject_HEAD
    Py_ssize_t size, registers, owns; /* owns: the most values that reading takes a reference to */
    Op *ops;
    PyObject **regs;
    int busy, whole, dead; /* whole: the replacement calls nothing of the user's */
    PyObject *run, *info, *weakrefs;
    Py_ssize_t fetched; /* registers that the replacement is given after the slots */
    Py_ssize_t *fetch;
} Entry;

static PyObject *str_shape, *str_dtype, *str_getattribute;

/* Whether an error, if there is one, means no more than that something does not hold; it is cleared
   then. Others (KeyboardInterrupt, SystemExit) reach the caller. */
static int forgive(void) {
    if (!PyErr_Occurred()) return 1;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return 0;
    PyErr_Clear();
    return 1;
}

static PyObject *instance_dict(PyObject *o) { /* borrowed: the object keeps it */
    PyObject **place = _PyObject_GetDictPtr(o);
    if (place && *place) return *place;
    PyObject *dict = PyObject_GenericGetDict(o, NULL);
    if (!dict) { forgive(); return NULL; }
    Py_DECREF(dict);
    return dict;
}

static int has_own_order(PyObject *dict) { /* an OrderedDict, of which move_to_end is not seen */
    return PyDict_GET_SIZE(dict) > 1 && !PyDict_CheckExact(dict) && PyODict_Check(dict);
}

static uint64_t tag_of(PyObject *dict) {
#if HAS_TAGS
    if (!PyDict_Check(dict) || has_own_order(dict)) return 0; /* which has no version */
    return ((PyDictObject *)dict)->ma_version_tag;
#else
    (void)dict;
    return 0;
#endif
}

static int same_float(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static int equal(PyObject *got, PyObject *want) {
    if (got == want) return 1;
    if (Py_TYPE(got) != Py_TYPE(want)) return 0;
    if (PyFloat_CheckExact(got)) return same_float(PyFloat_AS_DOUBLE(got), PyFloat_AS_DOUBLE(want));
    if (PyTuple_CheckExact(got)) {
        Py_ssize_t n = PyTuple_GET_SIZE(got);
        if (n != PyTuple_GET_SIZE(want)) return 0;
        for (Py_ssize_t i = 0; i < n; i++)
            if (!equal(PyTuple_GET_ITEM(got, i), PyTuple_GET_ITEM(want, i))) return 0;
        return 1;
    }
    if (!PyUnicode_CheckExact(got) && !PyLong_CheckExact(got) && !PyBytes_CheckExact(got)
        && !PyComplex_CheckExact(got) && !PyRange_Check(got) && !PySlice_Check(got) && !PyFrozenSet_CheckExact(got))
        return 0; /* identity only: a user's __eq__ does not run here */
    int same = PyObject_RichCompareBool(got, want, Py_EQ);
    if (same < 0) forgive();
    return same == 1;
}

/* A shape may have None for a size that may be anything. */
static int spec_fits(PyObject *got, PyObject *want) {
    if (got == want) return 1;
    PyObject *a = PyObject_GetAttr(got, str_shape), *b = PyObject_GetAttr(want, str_shape);
    PyObject *c = PyObject_GetAttr(got, str_dtype), *d = PyObject_GetAttr(want, str_dtype);
    int fits = a && b && c && c == d && PyTuple_Check(a) && PyTuple_Check(b)
               && PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b);
    for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(b); i++) {
        PyObject *size = PyTuple_GET_ITEM(b, i);
        fits = size == Py_None || equal(PyTuple_GET_ITEM(a, i), size);
    }
    Py_XDECREF(a); Py_XDECREF(b); Py_XDECREF(c); Py_XDECREF(d);
    forgive();
    return fits;
}

static int keys_in_order(PyObject *dict, PyObject *keys) {  // of an OrderedDict, by its own order
    PyObject *it = PyODict_Type.tp_iter(dict), *key;
    Py_ssize_t i = 0;
    int fits = it != NULL;
    while (fits && (key = PyIter_Next(it))) {
        fits = i < PyTuple_GET_SIZE(keys) && equal(key, PyTuple_GET_ITEM(keys, i++));
        Py_DECREF(key);
    }
    Py_XDECREF(it);
    forgive();
    return fits && i == PyTuple_GET_SIZE(keys);
}

static int keys_fit(PyObject *dict, PyObject *keys) {
    if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return 0;
    if (has_own_order(dict)) return keys_in_order(dict, keys);
    Py_ssize_t at = 0, i = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value))
        if (!equal(key, PyTuple_GET_ITEM(keys, i++))) return 0;
    return 1;
}

static int length_is(PyObject *x, Py_ssize_t n) {
    if (PyList_Check(x)) return PyList_GET_SIZE(x) == n;
    if (PyTuple_Check(x)) return PyTuple_GET_SIZE(x) == n;
    if (PyDict_Check(x)) return PyDict_GET_SIZE(x) == n;
    Py_ssize_t size = PyObject_Size(x);
    if (size < 0) forgive();
    return size == n;
}

static int call_holds(PyObject *check, PyObject *x) {
    PyObject *r = PyObject_CallOneArg(check, x);
    int holds = r ? PyObject_IsTrue(r) : 0;
    Py_XDECREF(r);
    forgive();
    return holds == 1;
}

/* 0: absent or None; 1: an instance of the type; 2: something else */
static Py_ssize_t kind_of(PyObject *dict, PyObject *key) {
    if (!PyDict_Check(dict)) return -1;
    PyObject *x = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(key, 0));
    if (!x || x == Py_None) return 0;
    return (PyObject *)Py_TYPE(x) == PyTuple_GET_ITEM(key, 1) ? 1 : 2;
}

/* Whether what is at key[0] has nothing in its attribute key[1]. */
static int is_unhooked(PyObject *dict, PyObject *key) {
    PyObject *x = PyDict_Check(dict) ? PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(key, 0)) : NULL;
    PyObject *found = x ? PyObject_GetAttr(x, PyTuple_GET_ITEM(key, 1)) : NULL;
    int empty = found && !PyObject_IsTrue(found);
    Py_XDECREF(found);
    forgive();
    return empty;
}

/* An attribute as the innermost class in C finds it: no code of the user's class runs. Its function is
   called itself where it is that class's own: its slot wrapper would make two tuples for each call. */
static PyObject *attribute_of_c(PyObject *x, PyObject *name) {
    PyTypeObject *type = Py_TYPE(x);
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_getattro == PyObject_GenericGetAttr)
        return PyObject_GetAttr(x, name);
    PyObject *getter = NULL;
    for (; type; type = type->tp_base)
        if ((getter = _PyType_Lookup(type, str_getattribute)) && Py_IS_TYPE(getter, &PyWrapperDescr_Type)) break;
    if (!type) return NULL;
    if (PyDescr_NAME(getter) == str_getattribute && PyObject_TypeCheck(x, PyDescr_TYPE(getter)))
        return ((getattrofunc)((PyWrapperDescrObject *)getter)->d_wrapped)(x, name);
    return PyObject_CallFunctionObjArgs(getter, x, name, NULL);
}

#define FEW_OWNED 64

#define RAISED PY_SSIZE_T_MAX

/* -1 if all guards hold, else the number of the first that does not; RAISED with an error set. What
   the replacement is given goes to `given`. */
static Py_ssize_t run_guards(Entry *g, PyObject *const *args, Py_ssize_t nargs, PyObject **given) {
    PyObject *few[FEW_OWNED], **owned = few, *local[256], **r = g->regs;
    Py_ssize_t i, failed = -1;
    int owns = 0, nested = g->busy;
    if (nested) { /* Python code that a guard called has come back here */
        if (g->registers > 256) return 0;
        r = local;
    }
    if (g->owns > FEW_OWNED && !(owned = PyMem_Malloc(g->owns * sizeof(PyObject *)))) return PyErr_NoMemory(), RAISED;
    g->busy = 1;
    for (i = 0; i < g->size && failed < 0; i++) {
        Op *o = &g->ops[i];
        PyObject *x = o->src >= 0 ? r[o->src] : NULL, *y = NULL;
        int ok = 1;
        switch (o->op) {
        case ARG: y = o->n < nargs ? args[o->n] : NULL; break;
        case CONST: y = o->key; break;
        case DICT: y = instance_dict(x); break;
        case GET: y = PyDict_Check(x) ? PyDict_GetItemWithError(x, o->key) : NULL; break;
        case ITEM:
            if (PyList_Check(x)) y = o->n < PyList_GET_SIZE(x) ? PyList_GET_ITEM(x, o->n) : NULL;
            else if (PyTuple_Check(x)) y = o->n < PyTuple_GET_SIZE(x) ? PyTuple_GET_ITEM(x, o->n) : NULL;
            break;
        case CELL: y = PyCell_Check(x) ? PyCell_GET(x) : NULL; break;
        case ATTR:
            y = attribute_of_c(x, o->key);
            if (y) owned[owns++] = y;
            break;
        case HANDLED:
            y = PyErr_GetHandledException();
            if (y) owned[owns++] = y;
            break;
        case TYPEOF: y = (PyObject *)Py_TYPE(x); break;
        case LOOKUP: y = PyType_Check(x) ? _PyType_Lookup((PyTypeObject *)x, o->key) : NULL; break;
        case TAG:
            if (HAS_TAGS && !nested && o->tag && o->tag == tag_of(x)) i = o->jump - 1;
            else o->tag = 0;
            continue;
        case SETTAG: if (!nested) g->ops[o->jump].tag = tag_of(x); continue;
        case IS: ok = x == o->key; break;
        /* By address: when what was there dies, before another can be there, so does the entry. */
        case IS_WEAK: ok = (uintptr_t)x == o->tag; break;
        case TYPE_WEAK: ok = (uintptr_t)Py_TYPE(x) == o->tag; break;
        case TYPE: ok = (PyObject *)Py_TYPE(x) == o->key; break;
        case EQ: ok = equal(x, o->key); break;
        case LEN: ok = length_is(x, o->n); break;
        case ABSENT: ok = PyDict_Check(x) && PyDict_GetItemWithError(x, o->key) == NULL; break;
        case KEYS: ok = PyDict_Check(x) && keys_fit(x, o->key); break;
        case SAME: ok = x == r[o->n]; break;
        case DISTINCT: ok = x != r[o->n]; break;
        case CALL: ok = call_holds(o->key, x); break;
        case SPEC: ok = spec_fits(x, o->key); break;
        case LACKS: ok = PyType_Check(x) && _PyType_Lookup((PyTypeObject *)x, o->key) == NULL; break;
        case CODE: ok = PyFunction_Check(x) && ((PyFunctionObject *)x)->func_code == o->key; break;
        case UNHOOKED: ok = is_unhooked(x, o->key); break;
        case NATIVE: ok = ((NativeGuard *)o->key)->holds(o->key, x); break;
        case KIND: ok = kind_of(x, o->key) == o->n; break;
        default: ok = 0;
        }
        if (o->op < IS) { ok = y != NULL; if (ok) r[o->dst] = y; }
        if (ok && o->op != ABSENT && o->op != KIND && o->op != KEYS) continue; /* these may hold where a look-up raised */
        if (!ok) failed = i;
        if (!forgive()) failed = RAISED;
    }
    for (i = 0; given && failed < 0 && i < g->fetched; i++) given[i] = r[g->fetch[i]];
    while (owns) Py_DECREF(owned[--owns]);
    if (owned != few) PyMem_Free(owned);
    g->busy = nested;
    return failed;
}

static int entry_traverse(Entry *g, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < g->size; i++) Py_VISIT(g->ops[i].key);
    Py_VISIT(g->run); Py_VISIT(g->info);
    return 0;
}
static int entry_clear(Entry *g) {
    for (Py_ssize_t i = 0; i < g->size; i++) Py_CLEAR(g->ops[i].key);
    g->size = 0;
    Py_CLEAR(g->info); Py_CLEAR(g->run);
    return 0;
}
static void entry_dealloc(Entry *g) {
    PyObject_GC_UnTrack(g);
    if (g->weakrefs) PyObject_ClearWeakRefs((PyObject *)g);
    entry_clear(g);
    PyMem_Free(g->ops);
    PyMem_Free(g->regs);
    PyMem_Free(g->fetch);
    Py_TYPE(g)->tp_free((PyObject *)g);
}
/* Entry([(op, dst, src, n, key, jump), ...], registers, run, info, whole, (register, ...)) */
static PyObject *entry_new(PyTypeObject *type, PyObject *a, PyObject *kw) {
    PyObject *list, *run, *info, *fetch = NULL;
    Py_ssize_t registers;
    int whole;
    if (!PyArg_ParseTuple(a, "O!nOOp|O!", &PyList_Type, &list, &registers, &run, &info, &whole, &PyTuple_Type, &fetch)) return NULL;
    Entry *g = (Entry *)type->tp_alloc(type, 0);
    if (!g) return NULL;
    Py_ssize_t size = PyList_GET_SIZE(list);
    g->ops = PyMem_Calloc(size ? size : 1, sizeof(Op));
    g->regs = PyMem_Calloc(registers ? registers : 1, sizeof(PyObject *));
    g->registers = registers;
    g->run = Py_NewRef(run);
    g->info = Py_NewRef(info);
    g->whole = whole;
    g->fetched = fetch ? PyTuple_GET_SIZE(fetch) : 0;
    g->fetch = PyMem_Calloc(g->fetched + 1, sizeof *g->fetch);
    if (!g->ops || !g->regs || !g->fetch) { Py_DECREF(g); return PyErr_NoMemory(); }
    for (Py_ssize_t i = 0; i < g->fetched; i++) {
        g->fetch[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(fetch, i));
        if (g->fetch[i] >= 0 && g->fetch[i] < registers) continue;
        Py_DECREF(g);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "Entry: expected numbers of registers");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        Op *o = &g->ops[i];
        PyObject *key;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "iiinOi", &o->op, &o->dst, &o->src, &o->n,
                              &key, &o->jump)) { Py_DECREF(g); return NULL; }
        o->key = Py_NewRef(key);
        g->size = i + 1;
        g->owns += o->op == ATTR || o->op == HANDLED;
        if (o->op != IS_WEAK && o->op != TYPE_WEAK) continue;
        if (!PyWeakref_Check(key)) { Py_DECREF(g); PyErr_SetString(PyExc_TypeError, "Entry: expected a weak reference"); return NULL; }
        o->tag = (uintptr_t)PyWeakref_GET_OBJECT(key);
    }
    return (PyObject *)g;
}
static PyObject *entry_check(Entry *g, PyObject *slots) {
    if (!PyTuple_Check(slots)) { PyErr_SetString(PyExc_TypeError, "check: expected a tuple"); return NULL; }
    Py_ssize_t failed = run_guards(g, ((PyTupleObject *)slots)->ob_item, PyTuple_GET_SIZE(slots), NULL);
    return failed == RAISED ? NULL : PyLong_FromSsize_t(failed);
}
static PyObject *entry_die(Entry *g, PyObject *none) { g->dead = 1; Py_RETURN_NONE; }
static PyMethodDef entry_methods[] = {
    {"die", (PyCFunction)entry_die, METH_NOARGS, "Something that a guard refers to is gone: hold no more."},
    {"check", (PyCFunction)entry_check, METH_O, "The number of the first guard that fails, or -1."}, {NULL}};
static PyMemberDef entry_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Entry, weakrefs), READONLY},
    {"run", T_OBJECT, offsetof(Entry, run), READONLY, "the replacement"},
    {"info", T_OBJECT, offsetof(Entry, info), READONLY, "what is told of it"}, {NULL}};
static PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "glasshouse.Entry", .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc, .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear, .tp_methods = entry_methods, .tp_members = entry_members,
    .tp_weaklistoffset = offsetof(Entry, weakrefs)};

/* ---------------------------------------------------------------- dispatcher */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;      /* the user's function */
    PyObject *code;    /* its code, for which the entries were made */
    PyObject *entries; /* list of Entry or weak references to one, newest first */
    PyObject *miss;    /* called as miss(dispatcher, *slots) */
    PyObject *dict, *weakrefs;
    long hits;
} Dispatcher;

enum { ON, RUN_ONLY, OFF };
static _Thread_local int mode = ON;
static _Thread_local PyObject *callback; /* of the frame hook */

/* Result of a replacement, or of `miss`, where only a call of a resume function is left to do: the
   caller of the dispatcher's C does it. So a loop with breaks in it takes no more of the stack
   with each round, and a traceback has one frame for one function. */
typedef struct { PyObject_VAR_HEAD PyObject *items[1]; } TailCall; /* the function, its arguments */
static void tail_dealloc(TailCall *t) {
    for (Py_ssize_t i = 0; i < Py_SIZE(t); i++) Py_XDECREF(t->items[i]);
    PyObject_Free(t);
}
static PyTypeObject TailType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "glasshouse.TailCall", .tp_basicsize = offsetof(TailCall, items),
    .tp_itemsize = sizeof(PyObject *), .tp_flags = Py_TPFLAGS_DEFAULT, .tp_dealloc = (destructor)tail_dealloc};
static PyObject *tail_call(PyObject *m, PyObject *const *args, Py_ssize_t n) {
    if (n < 1) { PyErr_SetString(PyExc_TypeError, "tail_call: expected a function"); return NULL; }
    TailCall *t = PyObject_NewVar(TailCall, &TailType, n);
    if (!t) return NULL;
    for (Py_ssize_t i = 0; i < n; i++) t->items[i] = Py_NewRef(args[i]);
    return (PyObject *)t;
}

static int count_slots(PyCodeObject *co) {
    return co->co_argcount + co->co_kwonlyargcount + ((co->co_flags & CO_VARARGS) != 0)
           + ((co->co_flags & CO_VARKEYWORDS) != 0);
}

/* Put the arguments where the code has them. 0 if they do not fit. `made` gets what is new. */
static int bind(PyFunctionObject *fn, PyObject *const *args, Py_ssize_t given, PyObject *kwnames,
                PyObject **slots, PyObject **made) {
    PyCodeObject *co = (PyCodeObject *)fn->func_code;
    Py_ssize_t positional = co->co_argcount, named = positional + co->co_kwonlyargcount;
    Py_ssize_t total = count_slots(co), names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    Py_ssize_t taken = given < positional ? given : positional;
    int star = (co->co_flags & CO_VARARGS) != 0, stars = (co->co_flags & CO_VARKEYWORDS) != 0;
    for (Py_ssize_t i = 0; i < total; i++) slots[i] = i < taken ? args[i] : NULL;
    if (given > positional && !star) return 0;
    if (star) {
        PyObject *rest = PyTuple_New(given - taken);
        if (!rest) return 0;
        for (Py_ssize_t i = taken; i < given; i++) PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i]));
        slots[named] = made[0] = rest;
    }
    if (stars) {
        slots[named + star] = made[1] = PyDict_New();
        if (!made[1]) return 0;
    }
    for (Py_ssize_t k = 0; k < names; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = co->co_posonlyargcount;
        for (; i < named; i++) {
            PyObject *own = PyTuple_GET_ITEM(co->co_localsplusnames, i);
            if (own == name || PyUnicode_Compare(own, name) == 0) break;
        }
        if (i < named) {
            if (slots[i]) return 0;
            slots[i] = args[given + k];
        } else if (!stars || PyDict_SetItem(made[1], name, args[given + k]) < 0) return 0;
    }
    Py_ssize_t defaults = fn->func_defaults ? PyTuple_GET_SIZE(fn->func_defaults) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        if (slots[i]) continue;
        if (i < positional) {
            if (i < positional - defaults) return 0;
            slots[i] = PyTuple_GET_ITEM(fn->func_defaults, i - (positional - defaults));
        } else {
            PyObject *name = PyTuple_GET_ITEM(co->co_localsplusnames, i);
            slots[i] = fn->func_kwdefaults ? PyDict_GetItemWithError(fn->func_kwdefaults, name) : NULL;
            if (!slots[i]) return 0;
        }
    }
    return 1;
}

#define FEW_GIVEN 64

/* Check an entry, and call its replacement if it holds: 1 with the result, 0 if it does not. */
static int try_entry(Dispatcher *d, Entry *entry, PyObject **slots, Py_ssize_t n, PyObject **result) {
    PyObject *few[FEW_GIVEN], **given = slots;
    if (entry->fetched) {
        given = n + entry->fetched <= FEW_GIVEN ? few : PyMem_Malloc((n + entry->fetched) * sizeof(PyObject *));
        if (!given) { *result = PyErr_NoMemory(); return 1; }
        memcpy(given, slots, n * sizeof(PyObject *));
    }
    Py_ssize_t failed = run_guards(entry, slots, n, entry->fetched ? given + n : NULL);
    if (failed < 0) {
        d->hits++;
        PyObject *cb = callback;
        if (entry->whole) callback = NULL;
        *result = PyObject_Vectorcall(entry->run, given, n + entry->fetched, NULL);
        if (cb) callback = cb;
    }
    if (given != slots && given != few) PyMem_Free(given);
    return failed < 0 || failed == RAISED;
}

static PyObject *on_slots(Dispatcher *d, PyObject **slots, Py_ssize_t n) {
    PyObject *entries = Py_NewRef(d->entries), *result = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); i++) {
        PyObject *item = PyList_GET_ITEM(entries, i);
        if (Py_TYPE(item) != &EntryType && PyWeakref_Check(item)) item = PyWeakref_GET_OBJECT(item);
        if (Py_TYPE(item) != &EntryType) continue; /* it died */
        Entry *entry = (Entry *)Py_NewRef(item);
        int done = !entry->dead && entry->run && try_entry(d, entry, slots, n, &result);
        Py_DECREF(entry);
        if (!done) continue;
        Py_DECREF(entries);
        return result;
    }
    Py_DECREF(entries);
    slots[-1] = (PyObject *)d;
    return PyObject_Vectorcall(d->miss, slots - 1, n + 1, NULL);
}

/* The function has other code now: nothing that was kept for it holds. */
static int renew(Dispatcher *d, PyObject *code) {
    Py_XSETREF(d->code, Py_NewRef(code));
    return PyList_SetSlice(d->entries, 0, PyList_GET_SIZE(d->entries), NULL);
}

#define SMALL 40

static PyObject *dispatch_once(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Dispatcher *d = (Dispatcher *)self;
    PyFunctionObject *fn = (PyFunctionObject *)d->fn;
    PyCodeObject *co = (PyCodeObject *)fn->func_code;
    if (mode == OFF) return PyObject_Vectorcall(d->fn, args, nargsf, kwnames);
    if ((PyObject *)co != d->code && renew(d, (PyObject *)co) < 0) return NULL;
    Py_ssize_t n = count_slots(co), cells = co->co_nfreevars;
    PyObject *small[SMALL + 1], **room = small, *made[2] = {NULL, NULL}, *result;
    if (n + cells > SMALL) {
        room = PyMem_Malloc((n + cells + 1) * sizeof(PyObject *));
        if (!room) return PyErr_NoMemory();
    }
    PyObject **slots = room + 1;
    Py_INCREF(d);
    if (!bind(fn, args, PyVectorcall_NARGS(nargsf), kwnames, slots, made)) {
        PyErr_Clear();
        PyObject *unfit = d->dict ? PyDict_GetItemString(d->dict, "on_unfit_call") : NULL;
        result = PyObject_Vectorcall(unfit ? unfit : d->fn, args, nargsf, kwnames); /* says what is wrong */
    } else {
        for (Py_ssize_t i = 0; i < cells; i++) slots[n + i] = PyTuple_GET_ITEM(fn->func_closure, i);
        result = on_slots(d, slots, n + cells);
    }
    Py_XDECREF(made[0]);
    Py_XDECREF(made[1]);
    if (room != small) PyMem_Free(room);
    Py_DECREF(d);
    return result;
}

static PyTypeObject DispatcherType;

/* The result of what is left to do, and of what that leaves. */
static PyObject *finish_tail(PyObject *result) {
    while (result && Py_TYPE(result) == &TailType) {
        TailCall *t = (TailCall *)result;
        PyObject *fn = t->items[0];
        if (PyObject_TypeCheck(fn, &DispatcherType)) result = dispatch_once(fn, t->items + 1, Py_SIZE(t) - 1, NULL);
        else result = PyObject_Vectorcall(fn, t->items + 1, Py_SIZE(t) - 1, NULL);
        /* The frame that left it may live on in a traceback: what was left to do is done. */
        for (Py_ssize_t i = 0; i < Py_SIZE(t); i++) Py_CLEAR(t->items[i]);
        Py_DECREF(t);
    }
    return result;
}
static PyObject *dispatch(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    return finish_tail(dispatch_once(self, args, nargsf, kwnames));
}

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *a, PyObject *kw) {
    PyObject *fn, *miss;
    if (!PyArg_ParseTuple(a, "O!O", &PyFunction_Type, &fn, &miss)) return NULL;
    Dispatcher *d = (Dispatcher *)type->tp_alloc(type, 0);
    if (!d) return NULL;
    d->vectorcall = dispatch;
    d->fn = Py_NewRef(fn);
    d->code = Py_NewRef(((PyFunctionObject *)fn)->func_code);
    d->miss = Py_NewRef(miss);
    d->entries = PyList_New(0);
    if (!d->entries) Py_CLEAR(d);
    return (PyObject *)d;
}
static int dispatcher_traverse(Dispatcher *d, visitproc visit, void *arg) {
    Py_VISIT(d->fn); Py_VISIT(d->entries); Py_VISIT(d->miss); Py_VISIT(d->dict);
    return 0;
}
static int dispatcher_clear(Dispatcher *d) {
    Py_CLEAR(d->dict); Py_CLEAR(d->miss);
    if (d->entries) PyList_SetSlice(d->entries, 0, PyList_GET_SIZE(d->entries), NULL);
    return 0;
}
static void dispatcher_dealloc(Dispatcher *d) {
    PyObject_GC_UnTrack(d);
    if (d->weakrefs) PyObject_ClearWeakRefs((PyObject *)d);
    Py_CLEAR(d->fn); Py_CLEAR(d->code); Py_CLEAR(d->entries); Py_CLEAR(d->miss); Py_CLEAR(d->dict);
    Py_TYPE(d)->tp_free((PyObject *)d);
}
static PyObject *dispatcher_get(PyObject *self, PyObject *obj, PyObject *type) {
    if (!obj || obj == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, obj);
}
static PyMemberDef dispatcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Dispatcher, vectorcall), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Dispatcher, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Dispatcher, weakrefs), READONLY},
    {"fn", T_OBJECT, offsetof(Dispatcher, fn), READONLY, "the user's function"},
    {"entries", T_OBJECT, offsetof(Dispatcher, entries), READONLY, "Entries, or weak references to them, newest first"},
    {"hits", T_LONG, offsetof(Dispatcher, hits), READONLY, "calls that an entry answered"},
    {NULL}};
static PyGetSetDef dispatcher_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};
static PyTypeObject DispatcherType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "glasshouse.Dispatcher", .tp_basicsize = sizeof(Dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
                | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_BASETYPE,
    .tp_new = dispatcher_new, .tp_dealloc = (destructor)dispatcher_dealloc,
    .tp_traverse = (traverseproc)dispatcher_traverse, .tp_clear = (inquiry)dispatcher_clear,
    .tp_call = PyVectorcall_Call, .tp_descr_get = dispatcher_get, .tp_members = dispatcher_members,
    .tp_getset = dispatcher_getset, .tp_vectorcall_offset = offsetof(Dispatcher, vectorcall),
    .tp_dictoffset = offsetof(Dispatcher, dict), .tp_weaklistoffset = offsetof(Dispatcher, weakrefs)};

/* ---------------------------------------------------------------- the frame hook */

static Py_ssize_t extra_index = -1;
static int threads_on;
static PyObject *hook(PyThreadState *ts, _PyInterpreterFrame *f, int throwflag);
static PyCodeObject *stub; /* "return its argument": has the evaluator pop a frame for us */
static PyObject *stub_function;
static int reached; /* whether a frame of the stub came by */
static _PyFrameEvalFunction before; /* who had the hook: called for every frame that we do not take */
static _Thread_local _PyInterpreterFrame *passed; /* the frame that `before` has from us */

/* The former owner of the hook may in turn call us: the second time is the last. */
static PyObject *evaluate(PyThreadState *ts, _PyInterpreterFrame *f, int throwflag) {
    _PyInterpreterFrame *outer = passed;
    if (!before || before == hook || outer == f) return _PyEval_EvalFrameDefault(ts, f, throwflag);
    passed = f;
    PyObject *result = before(ts, f, throwflag);
    passed = outer;
    return result;
}

/* Give a frame that will not run its result. */
static PyObject *finish(PyThreadState *ts, _PyInterpreterFrame *f, PyObject *result) {
#if PY_VERSION_HEX < 0x030C0000
    return result; /* the caller clears the frame */
#else
    int slots = count_slots(frame_code(f));
    set_frame_local(f, 0, result);
    for (int i = 1; i < slots; i++) set_frame_local(f, i, NULL);
    set_frame_code(f, (PyCodeObject *)Py_NewRef(stub));
    return _PyEval_EvalFrameDefault(ts, f, result == NULL);
#endif
}

static PyObject *hook(PyThreadState *ts, _PyInterpreterFrame *f, int throwflag) {
    PyObject *cb = callback;
    PyCodeObject *co = frame_code(f);
    void *skipped = NULL;
    if (co == stub) reached = 1;
    if (!cb || passed == f || mode != ON || ts->tracing || throwflag || f->owner != FRAME_OWNED_BY_THREAD || FRAME_IP(f) != ENTRY_IP(co)
        || f->frame_obj || f->f_locals || !(co->co_flags & CO_OPTIMIZED) || !co->co_nlocalsplus
        || (co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)))
        return evaluate(ts, f, throwflag);
    GetExtra((PyObject *)co, extra_index, &skipped);
    if (skipped) return evaluate(ts, f, throwflag);
    callback = NULL;
    PyObject *found = PyObject_CallOneArg(cb, (PyObject *)frame_function(f));
    callback = cb;
    if (!found) return forgive() ? evaluate(ts, f, throwflag) : finish(ts, f, NULL);
    if (!PyObject_TypeCheck(found, &DispatcherType)) {
        SetExtra((PyObject *)co, extra_index, (void *)1);
        Py_DECREF(found);
        return evaluate(ts, f, throwflag);
    }
    Py_ssize_t n = count_slots(co), cells = co->co_nfreevars;
    PyObject *closure = frame_function(f)->func_closure, *result = NULL;
    PyObject **room = PyMem_Malloc((n + cells + 1) * sizeof(PyObject *));
    if (room) {
        for (Py_ssize_t i = 0; i < n; i++) room[i + 1] = frame_local(f, i);
        for (Py_ssize_t i = 0; i < cells; i++) room[n + i + 1] = PyTuple_GET_ITEM(closure, i);
        result = finish_tail(on_slots((Dispatcher *)found, room + 1, n + cells));
        PyMem_Free(room);
    } else PyErr_NoMemory();
    Py_DECREF(found);
    return finish(ts, f, result);
}

/* Whether who has the hook hands frames on to us. */
static int is_called(_PyFrameEvalFunction current) {
    if (current == hook || current == _PyEval_EvalFrameDefault) return current == hook;
    reached = 0;
    Py_XDECREF(PyObject_CallOneArg(stub_function, Py_None));
    return reached;
}

/* This thread has no callback any more. A later owner of the hook calls us: then we stay where we
   are, and pass every frame on. */
static void leave_thread(void) {
    PyInterpreterState *in = PyInterpreterState_Get();
    if (--threads_on == 0 && _PyInterpreterState_GetEvalFrameFunc(in) == hook)
        _PyInterpreterState_SetEvalFrameFunc(in, before ? before : _PyEval_EvalFrameDefault);
}
static void end_thread(PyObject *mark) { /* it may end with a callback */
    if ((uintptr_t)PyCapsule_GetContext(mark) != PyThread_get_thread_ident() || !callback) return;
    Py_CLEAR(callback);
    leave_thread();
}
static int watch_end(void) { /* of this thread: its dictionary goes then */
    PyObject *own = PyThreadState_GetDict(), *mark;
    if (!own || PyDict_GetItemString(own, "glasshouse.hook")) return 1;
    if (!(mark = PyCapsule_New(&threads_on, NULL, end_thread))) return 0;
    PyCapsule_SetContext(mark, (void *)(uintptr_t)PyThread_get_thread_ident());
    const int failed = PyDict_SetItemString(own, "glasshouse.hook", mark);
    Py_DECREF(mark);
    return !failed;
}

/* set_hook(callback or None) -> the one before, in this thread */
static PyObject *set_hook(PyObject *m, PyObject *cb) {
    PyInterpreterState *in = PyInterpreterState_Get();
    if (!callback && cb != Py_None) {
        _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(in);
        int called = threads_on || is_called(current);
        if (!forgive() || !watch_end()) return NULL;
        threads_on++;
        if (!called) {
            before = current == _PyEval_EvalFrameDefault ? NULL : current;
            _PyInterpreterState_SetEvalFrameFunc(in, hook);
        }
    }
    PyObject *old = callback ? callback : Py_NewRef(Py_None), *now = cb == Py_None ? NULL : Py_NewRef(cb);
    if (callback && !now) leave_thread();
    callback = now;
    return old;
}
static PyObject *set_mode(PyObject *m, PyObject *value) {
    int old = mode, now = (int)PyLong_AsLong(value);
    if (PyErr_Occurred()) return NULL;
    mode = now;
    return PyLong_FromLong(old);
}
static PyObject *get_mode(PyObject *m, PyObject *none) { return PyLong_FromLong(mode); }
static PyObject *set_skip(PyObject *m, PyObject *a) {
    PyObject *code;
    int on;
    if (!PyArg_ParseTuple(a, "O!p", &PyCode_Type, &code, &on)) return NULL;
    SetExtra(code, extra_index, on ? (void *)1 : NULL);
    Py_RETURN_NONE;
}
/* call_handling(error or None, fn, args, kwargs): fn called while an exception (or none) is being
   handled. In C, for a `finally` in Python would put back what is handled while it runs. */
static PyObject *call_handling(PyObject *m, PyObject *a) {
    PyObject *error, *fn, *args, *kwargs;
    if (!PyArg_ParseTuple(a, "OOO!O!", &error, &fn, &PyTuple_Type, &args, &PyDict_Type, &kwargs)) return NULL;
    if (error != Py_None && !PyExceptionInstance_Check(error)) { /* Python itself does not look */
        PyErr_Format(PyExc_TypeError, "call_handling: expected an exception, got %.100s", Py_TYPE(error)->tp_name);
        return NULL;
    }
    /* Exceptions that this generator or thread handles itself: its caller's must not become its own. */
    _PyErr_StackItem *item = PyThreadState_Get()->exc_info;
    PyObject *before_it = item->exc_value;
    item->exc_value = error == Py_None ? NULL : Py_NewRef(error);
    PyObject *result = PyObject_Call(fn, args, kwargs);
    Py_XSETREF(item->exc_value, before_it);
    return result;
}
/* raise_again(error): raise with the traceback and the context that the error has. */
static PyObject *raise_again(PyObject *m, PyObject *error) {
    if (!PyExceptionInstance_Check(error)) {
        PyErr_Format(PyExc_TypeError, "raise_again: expected an exception, got %.100s", Py_TYPE(error)->tp_name);
        return NULL;
    }
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), Py_NewRef(error), PyException_GetTraceback(error));
    return NULL;
}
/* detach_frame(frame): a frame that has ended, as in a traceback, refers to its caller no more. */
static PyObject *detach_frame(PyObject *m, PyObject *frame) {
    if (!PyFrame_Check(frame)) {
        PyErr_Format(PyExc_TypeError, "detach_frame: expected a frame, got %.100s", Py_TYPE(frame)->tp_name);
        return NULL;
    }
    PyFrameObject *f = (PyFrameObject *)frame;
    if (f->f_frame->owner == FRAME_OWNED_BY_FRAME_OBJECT) Py_CLEAR(f->f_back);
    Py_RETURN_NONE;
}
/* make_frame(code, globals): a frame that runs nothing and was called by none, for a traceback. */
static PyObject *make_frame(PyObject *m, PyObject *a) {
    PyObject *code, *globals;
    if (!PyArg_ParseTuple(a, "O!O!", &PyCode_Type, &code, &PyDict_Type, &globals)) return NULL;
    return (PyObject *)PyFrame_New(PyThreadState_Get(), (PyCodeObject *)code, globals, NULL);
}
static PyMethodDef functions[] = {
    {"raise_again", raise_again, METH_O, "Raise with the traceback and the context that the error has."},
    {"detach_frame", detach_frame, METH_O, "A frame that has ended refers to its caller no more."},
    {"make_frame", make_frame, METH_VARARGS, "A frame that runs nothing and was called by none."},
    {"tail_call", (PyCFunction)(void (*)(void))tail_call, METH_FASTCALL, "What a replacement returns to have a function called when it is gone."},
    {"call_handling", call_handling, METH_VARARGS, "Call while an exception (or none) is being handled."},
    {"set_hook", set_hook, METH_O, "Have frames of this thread shown to a callback; the one before."},
    {"set_mode", set_mode, METH_O, "0 on, 1 run only, 2 off, in this thread; the mode before."},
    {"get_mode", get_mode, METH_NOARGS, "The mode of this thread."},
    {"set_skip", set_skip, METH_VARARGS, "Do not show frames of a code object (or do)."},
    {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "frame_hook", NULL, -1, functions};

PyMODINIT_FUNC PyInit_frame_hook(void) {
    extra_index = ExtraIndex(NULL);
    str_getattribute = PyUnicode_InternFromString("__getattribute__");
    str_shape = PyUnicode_InternFromString("shape");
    str_dtype = PyUnicode_InternFromString("dtype");
    if (extra_index < 0 || PyType_Ready(&EntryType) < 0 || PyType_Ready(&DispatcherType) < 0 || PyType_Ready(&TailType) < 0) return NULL;
    PyObject *m = PyModule_Create(&module), *names = PyDict_New();
    if (!m || !names) return NULL;
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    PyObject *r = PyRun_String("def stub(x): return x\n", Py_file_input, names, names);
    if (!r) return NULL;
    Py_DECREF(r);
    stub_function = Py_NewRef(PyDict_GetItemString(names, "stub"));
    stub = (PyCodeObject *)PyFunction_GetCode(stub_function);
    Py_DECREF(names);
    PyModule_AddObject(m, "Entry", Py_NewRef((PyObject *)&EntryType));
    PyModule_AddObject(m, "Dispatcher", Py_NewRef((PyObject *)&DispatcherType));
    return m;
}
