/* Between PyTorch's tensors and a Program's run table, without a Python object for each tensor.

   A TensorCall knows what the arguments of one call have to be (dtype, sizes and strides of a tensor,
   the value of anything else) and which results it makes. `fill` compares, and writes where tensors
   lie into the table; `results` makes tensors over given memory, or over memory of its own where that
   is small, and writes their places. Both go through DLPack's C functions, which PyTorch has since
   2.10 (`__dlpack_c_exchange_api__`). Tensors of PyTorch's own two classes are read faster where
   they lie: tensor_access.py finds out at which offsets, and tries them against DLPack.

   Source: DLPack 1.3, dlpack.h, whose structures stand below */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t major, minor; } DLPackVersion;
typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct ManagedTensor {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct ManagedTensor *);
    uint64_t flags;
    DLTensor tensor;
} ManagedTensor;
typedef struct {
    DLPackVersion version;
    void *previous, *allocate, *managed_from_object;
    int (*object_from_managed)(ManagedTensor *, void **);
    int (*tensor_from_object)(void *, DLTensor *);
} ExchangeApi;

enum { CPU = 1, ALIGNMENT = 64, VALUE = -1, WORDS = 32 /* of a tensor that a stamp looks at */ };

static const ExchangeApi *api;
static PyTypeObject *tensor_type, *parameter_type; /* torch.Tensor, torch.nn.Parameter */

/* Where a tensor has its parts, in bytes; `impl` is 0 where that is not known. */
static struct {
    Py_ssize_t impl;                           /* in the Python object: its TensorImpl … */
    Py_ssize_t storage, sizes, dtype, key_set; /* … in that: a pointer, sizes, a 16-bit number, 64 bits … */
    Py_ssize_t data, nbytes;                   /* … and in the storage: a pointer, and how much lies there. */
    uint64_t keys, keys_of_cpu;                /* bits of `key_set` to be compared, and what they are */
    /* In a storage: whether it may be resized (a byte), by which allocator, and PyTorch's own; 0: not known. */
    Py_ssize_t resizable, allocator;
    uint64_t allocator_of_cpu;
} parts;
enum { MOST_INLINE = 5 }; /* sizes that lie in a TensorImpl itself, before as many strides */

/* What an argument or result is: a tensor's dtype, sizes and strides, or another value. */
typedef struct {
    int64_t place, nbytes; /* in the run table, or -1; of a result */
    int32_t ndim;          /* VALUE: no tensor */
    int32_t number;        /* of its dtype in PyTorch */
    DLDataType dtype;
    const int64_t *sizes, *strides;
    PyObject *value;
} Expected;

typedef struct {
    PyObject_HEAD
    int64_t *table;
    Py_ssize_t inputs, outputs;
    Expected *all; /* inputs, then outputs */
    int64_t *numbers;
} TensorCall;

static void free_call(TensorCall *x) {
    PyTypeObject *type = Py_TYPE(x);
    for (Py_ssize_t i = 0; x->all && i < x->inputs; i++) Py_XDECREF(x->all[i].value);
    PyMem_Free(x->all);
    PyMem_Free(x->numbers);
    type->tp_free(x);
    Py_DECREF(type);
}

/* The numbers of a tuple, put where `numbers` is. */
static int take_numbers(PyObject *tuple, int64_t **numbers) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) *(*numbers)++ = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* (place, code, bits, number, sizes, strides, bytes) of a tensor, or (value,). */
static int take_expected(PyObject *given, Expected *to, int64_t **numbers) {
    if (!PyTuple_Check(given)) return PyErr_SetString(PyExc_TypeError, "expected: a tuple"), -1;
    to->place = to->ndim = VALUE;
    if (PyTuple_GET_SIZE(given) == 1) {
        to->value = Py_NewRef(PyTuple_GET_ITEM(given, 0));
        return 0;
    }
    PyObject *sizes, *strides;
    long long place, nbytes;
    int code, bits, number;
    if (!PyArg_ParseTuple(given, "LiiiO!O!L", &place, &code, &bits, &number, &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &nbytes))
        return -1;
    to->place = place, to->nbytes = nbytes, to->ndim = (int32_t)PyTuple_GET_SIZE(sizes), to->number = number;
    to->dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
    to->sizes = *numbers;
    if (take_numbers(sizes, numbers)) return -1;
    to->strides = *numbers;
    return take_numbers(strides, numbers);
}

static Py_ssize_t count_numbers(PyObject *list) {
    Py_ssize_t n = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *x = PyList_GET_ITEM(list, i);
        if (PyTuple_Check(x) && PyTuple_GET_SIZE(x) == 7)
            for (int k = 4; k < 6; k++)
                if (PyTuple_Check(PyTuple_GET_ITEM(x, k))) n += PyTuple_GET_SIZE(PyTuple_GET_ITEM(x, k));
    }
    return n;
}

/* TensorCall(table, inputs, outputs): the address of the run table, and what is expected. */
static PyObject *new_call(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)named;
    PyObject *inputs, *outputs;
    unsigned long long table;
    if (!PyArg_ParseTuple(args, "KO!O!", &table, &PyList_Type, &inputs, &PyList_Type, &outputs)) return NULL;
    TensorCall *x = (TensorCall *)type->tp_alloc(type, 0);
    if (!x) return NULL;
    x->table = (int64_t *)(uintptr_t)table;
    const Py_ssize_t n = PyList_GET_SIZE(inputs), m = PyList_GET_SIZE(outputs);
    x->inputs = n, x->outputs = m;
    x->all = PyMem_Calloc((size_t)(n + m + 1), sizeof *x->all);
    int64_t *numbers = x->numbers = PyMem_Calloc((size_t)(count_numbers(inputs) + count_numbers(outputs) + 1), 8);
    if (!x->all || !numbers) return Py_DECREF(x), PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n + m; i++)
        if (take_expected(i < n ? PyList_GET_ITEM(inputs, i) : PyList_GET_ITEM(outputs, i - n), x->all + i, &numbers))
            return Py_DECREF(x), NULL;
    return (PyObject *)x;
}

/* Whether sizes and strides are those that are expected: of an axis of one element any stride is. */
static int lies_as(const Expected *e, const int64_t *sizes, const int64_t *strides) {
    for (int32_t i = 0; i < e->ndim; i++)
        if (sizes[i] != e->sizes[i] || (strides[i] != e->strides[i] && sizes[i] != 1)) return 0;
    return 1;
}

/* The TensorImpl of a tensor of PyTorch's own two classes, where its parts are known; else NULL. */
static const char *impl_of(PyObject *given) {
    if (!parts.impl || !(Py_IS_TYPE(given, tensor_type) || Py_IS_TYPE(given, parameter_type))) return NULL;
    return *(char **)((char *)given + parts.impl);
}

/* Whether its elements lie on the CPU as they are. */
static int is_plain(const char *impl) { return (*(const uint64_t *)(impl + parts.key_set) & parts.keys) == parts.keys_of_cpu; }

/* Its offset in its storage, in elements. */
static int64_t offset_of(const char *impl) { return ((const int64_t *)(impl + parts.sizes))[2 * MOST_INLINE]; }

/* Where the data of a tensor lie that is as expected; -1 for another tensor, or none. */
static int64_t place_of(PyObject *given, const Expected *e) {
    const char *impl = impl_of(given);
    if (impl) {
        const int64_t *sizes = (const int64_t *)(impl + parts.sizes);
        if (sizes[-1] != e->ndim || *(const uint16_t *)(impl + parts.dtype) != e->number) return -1;
        if (!is_plain(impl)) return -1;
        const int is_inline = e->ndim <= MOST_INLINE;
        const int64_t *first = is_inline ? sizes : *(const int64_t **)sizes;
        if (!lies_as(e, first, first + (is_inline ? MOST_INLINE : e->ndim))) return -1;
        const char *storage = *(char **)(impl + parts.storage);
        return *(const int64_t *)(storage + parts.data) + offset_of(impl) * (e->dtype.bits / 8);
    }
    DLTensor t;
    if (!PyObject_TypeCheck(given, tensor_type)) return -1;
    if (api->tensor_from_object(given, &t)) return PyErr_Clear(), -1;
    const int same = t.dtype.code == e->dtype.code && t.dtype.bits == e->dtype.bits && t.device.type == CPU;
    if (!same || t.ndim != e->ndim || !lies_as(e, t.shape, t.strides)) return -1;
    return (int64_t)(uintptr_t)t.data + (int64_t)t.byte_offset;
}

/* fill(list) -> whether the arguments are those that are expected; the table has their places then. */
static PyObject *fill(TensorCall *x, PyObject *args) {
    if (!PyList_Check(args) || PyList_GET_SIZE(args) != x->inputs) Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < x->inputs; i++) {
        PyObject *given = PyList_GET_ITEM(args, i);
        const Expected *e = x->all + i;
        if (e->ndim == VALUE) {
            if (given == e->value) continue;
            if (Py_TYPE(given) != Py_TYPE(e->value)) Py_RETURN_FALSE;
            const int same = PyObject_RichCompareBool(given, e->value, Py_EQ);
            if (same < 0) return NULL;
            if (!same) Py_RETURN_FALSE;
            continue;
        }
        const int64_t place = place_of(given, e);
        if (place == -1) Py_RETURN_FALSE;
        if (e->place >= 0) x->table[e->place] = place;
    }
    Py_RETURN_TRUE;
}

static inline uint64_t mixed(uint64_t x, uint64_t more) {
    x = (x ^ more) * 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

/* stamp(args, numbers) -> a number that changes when one of these tensors is written to or replaced, also
   where PyTorch does not count the write: from its address, its version and a few of its words. */
static PyObject *stamp(TensorCall *x, PyObject *given) {
    PyObject *args, *numbers;
    if (!PyArg_ParseTuple(given, "O!O!", &PyList_Type, &args, &PyTuple_Type, &numbers)) return NULL;
    uint64_t sum = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(numbers, i));
        if (at < 0 || at >= x->inputs || at >= PyList_GET_SIZE(args) || x->all[at].place < 0)
            return PyErr_SetString(PyExc_IndexError, "stamp: expected a tensor in the run table"), NULL;
        PyObject *version = PyObject_GetAttrString(PyList_GET_ITEM(args, at), "_version");
        if (!version) return NULL;
        const Expected *e = x->all + at;
        const int64_t place = x->table[e->place];
        sum = mixed(mixed(sum, (uint64_t)place), (uint64_t)PyLong_AsUnsignedLongLong(version));
        Py_DECREF(version);
        int64_t elements = 1;
        for (int32_t k = 0; k < e->ndim; k++) elements *= e->sizes[k];
        const int64_t bytes = elements * (e->dtype.bits / 8), step = bytes > 8 * WORDS ? bytes / WORDS / 8 * 8 : 8;
        for (int64_t k = 0; k + 8 <= bytes; k += step) {
            uint64_t word;
            memcpy(&word, (const char *)(uintptr_t)place + k, 8);
            sum = mixed(sum, word);
        }
    }
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromUnsignedLongLong(sum);
}

/* PyTorch let go of a result: a buffer's owner is told, memory of its own is returned. */
static void let_go(ManagedTensor *m) {
    PyObject *owner = m->manager_ctx;
    if (owner && Py_IsInitialized()) {
        PyGILState_STATE held = PyGILState_Ensure();
        Py_DECREF(owner);
        PyGILState_Release(held);
    }
    free(m);
}

/* Have PyTorch resize the storage of a tensor when it is asked to, where it is known how. */
static void make_resizable(PyObject *tensor) {
    const char *impl = impl_of(tensor);
    if (!impl || !parts.allocator_of_cpu) return;
    char *storage = *(char **)(impl + parts.storage);
    storage[parts.resizable] = 1;
    *(uint64_t *)(storage + parts.allocator) = parts.allocator_of_cpu;
}

/* A tensor as a result describes it, over `data`, which `owner` keeps; without, over its own. */
static PyObject *make_result(const Expected *e, PyObject *owner, void *data) {
    const size_t head = (sizeof(ManagedTensor) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t nbytes = owner ? head : head + ((size_t)e->nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ManagedTensor *m = aligned_alloc(ALIGNMENT, nbytes);
    if (!m) return PyErr_NoMemory();
    *m = (ManagedTensor){.version = {1, 0}, .manager_ctx = owner, .deleter = let_go};
    m->tensor = (DLTensor){owner ? data : (char *)m + head, {CPU, 0}, e->ndim, e->dtype, (int64_t *)e->sizes, (int64_t *)e->strides, 0};
    void *made = NULL;
    Py_XINCREF(owner);
    if (api->object_from_managed(m, &made)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "torch.compile: PyTorch made no tensor of a result");
        return NULL;
    }
    make_resizable(made);
    return made;
}

/* The address of a tensor's data as DLPack says; -1 with an error where it cannot. */
static int64_t data_of(PyObject *tensor) {
    DLTensor t;
    if (api->tensor_from_object(tensor, &t)) return -1;
    return (int64_t)(uintptr_t)t.data + (int64_t)t.byte_offset;
}

/* results(buffers) -> a tensor for each result, whose place the table has. A buffer is (address,
   owner), or None: the result gets memory of its own; or the tensor that the result is written to. */
static PyObject *results(TensorCall *x, PyObject *buffers) {
    if (!PyList_Check(buffers) || PyList_GET_SIZE(buffers) != x->outputs)
        return PyErr_SetString(PyExc_TypeError, "results: expected a buffer or None for each"), NULL;
    PyObject *list = PyList_New(x->outputs);
    for (Py_ssize_t i = 0; list && i < x->outputs; i++) {
        const Expected *e = x->all + x->inputs + i;
        PyObject *given = PyList_GET_ITEM(buffers, i), *owner = NULL, *made;
        int64_t place = -1;
        if (PyObject_TypeCheck(given, tensor_type)) {
            made = Py_NewRef(given);
            place = place_of(given, e);
        } else {
            unsigned long long address = 0;
            if (given != Py_None && !PyArg_ParseTuple(given, "KO", &address, &owner)) return Py_DECREF(list), NULL;
            made = make_result(e, owner, (void *)(uintptr_t)address);
            if (!made) return Py_DECREF(list), NULL;
        }
        PyList_SET_ITEM(list, i, made);
        if (place == -1) place = data_of(made);
        if (place == -1) return Py_DECREF(list), NULL;
        x->table[e->place] = place;
    }
    return list;
}

static PyMethodDef methods[] = {
    {"fill", (PyCFunction)fill, METH_O, NULL},
    {"results", (PyCFunction)results, METH_O, NULL},
    {"stamp", (PyCFunction)stamp, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, new_call},
    {Py_tp_dealloc, free_call},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec spec = {"tensor_call.TensorCall", sizeof(TensorCall), 0, Py_TPFLAGS_DEFAULT, slots};

/* setup(capsule, type, parameter): DLPack's C functions, torch.Tensor and torch.nn.Parameter. */
static PyObject *setup(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule, *type, *parameter;
    if (!PyArg_ParseTuple(args, "OO!O!", &capsule, &PyType_Type, &type, &PyType_Type, &parameter)) return NULL;
    const ExchangeApi *given = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!given) return NULL;
    if (given->version.major != 1 || !given->tensor_from_object || !given->object_from_managed)
        return PyErr_SetString(PyExc_NotImplementedError, "another version of DLPack"), NULL;
    api = given;
    tensor_type = (PyTypeObject *)Py_NewRef(type), parameter_type = (PyTypeObject *)Py_NewRef(parameter);
    Py_RETURN_NONE;
}

/* set_parts(impl, storage, sizes, dtype, key_set, data, nbytes, keys, keys_of_cpu, resizable, allocator,
   allocator_of_cpu):
   see `parts`. */
static PyObject *set_parts(PyObject *self, PyObject *args) {
    (void)self;
    unsigned long long keys, of_cpu, allocator;
    if (!PyArg_ParseTuple(args, "nnnnnnnKKnnK", &parts.impl, &parts.storage, &parts.sizes, &parts.dtype, &parts.key_set,
                          &parts.data, &parts.nbytes, &keys, &of_cpu, &parts.resizable, &parts.allocator, &allocator))
        return NULL;
    parts.keys = keys, parts.keys_of_cpu = of_cpu, parts.allocator_of_cpu = allocator;
    Py_RETURN_NONE;
}

/* seen(tensor) -> (where its data lie, and its sizes), as DLPack says. */
static PyObject *seen(PyObject *self, PyObject *tensor) {
    (void)self;
    DLTensor t;
    if (api->tensor_from_object(tensor, &t)) return NULL;
    return Py_BuildValue("KK", (unsigned long long)(uintptr_t)t.data, (unsigned long long)(uintptr_t)t.shape);
}

typedef struct { uint64_t begin, end; } Range;

static int order_of_ranges(const void *a, const void *b) {
    const uint64_t x = ((const Range *)a)->begin, y = ((const Range *)b)->begin;
    return (x > y) - (x < y);
}

/* Adds where a storage lies to `ranges`; gives whether that is memory of somebody else's, which
   another storage may have too: what PyTorch allocates it frees by its address alone. */
static int note_range(const char *storage, Range *ranges, Py_ssize_t *n) {
    const uint64_t *data = (const uint64_t *)(storage + parts.data);
    const uint64_t nbytes = *(const uint64_t *)(storage + parts.nbytes);
    if (!data[0] || !nbytes) return 0;
    ranges[(*n)++] = (Range){data[0], data[0] + nbytes};
    return data[1] != data[0];
}

static int any_overlap(Range *ranges, Py_ssize_t n) {
    qsort(ranges, (size_t)n, sizeof *ranges, order_of_ranges);
    for (Py_ssize_t i = 1; i < n; i++)
        if (ranges[i].begin < ranges[i - 1].end) return 1;
    return 0;
}

/* A storage that was met: its address, and offset and number of the first tensor that lies in it. */
typedef struct { int64_t storage, offset, number; } Met;

/* The number of the first tensor of the same storage; where that is another one, both offsets in elements. */
typedef struct { int64_t first, offset, its_offset; } Share;

/* The shares of those of `n` objects that are tensors: how many there are; -1 where one cannot be read.
   or where memory is that of two storages. `met` has room for `count`, a power of two that is
   larger than n. */
static Py_ssize_t find_shares(PyObject **given, Py_ssize_t n, Share *shares, Range *ranges, Met *met, size_t count) {
    Py_ssize_t made = 0, storages = 0;
    int borrowed = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!PyObject_TypeCheck(given[i], tensor_type)) continue;
        const char *impl = impl_of(given[i]);
        if (!impl || !is_plain(impl)) return -1;
        const int64_t storage = *(const int64_t *)(impl + parts.storage), offset = offset_of(impl);
        size_t at = (size_t)(mixed(1, (uint64_t)storage) >> 32) & (count - 1);
        while (met[at].storage && met[at].storage != storage) at = (at + 1) & (count - 1);
        if (met[at].storage)
            shares[made] = (Share){met[at].number, offset, met[at].offset};
        else {
            met[at] = (Met){storage, offset, made};
            borrowed |= note_range((const char *)storage, ranges, &storages);
            shares[made] = (Share){made, 0, 0};
        }
        made++;
    }
    return borrowed && any_overlap(ranges, storages) ? -1 : made;
}

/* sharing(tuple) -> bytes that say which of its tensors share a storage, and where they lie in that;
   None where one cannot be read, or where two storages have the same memory. */
static PyObject *sharing(PyObject *self, PyObject *args) {
    (void)self;
    if (!PyTuple_Check(args)) return PyErr_SetString(PyExc_TypeError, "sharing: expected a tuple"), NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    size_t count = 2;
    while (count < 2 * (size_t)n) count *= 2;
    Met *met = PyMem_Calloc(count, sizeof *met);
    Share *shares = PyMem_Calloc((size_t)n + 1, sizeof *shares);
    Range *ranges = PyMem_Calloc((size_t)n + 1, sizeof *ranges);
    PyObject *found = NULL;
    if (met && shares && ranges) {
        const Py_ssize_t made = find_shares(((PyTupleObject *)args)->ob_item, n, shares, ranges, met, count);
        found = made < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((char *)shares, made * (Py_ssize_t)sizeof *shares);
    } else
        PyErr_NoMemory();
    PyMem_Free(met);
    PyMem_Free(shares);
    PyMem_Free(ranges);
    return found;
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS, NULL},
    {"set_parts", set_parts, METH_VARARGS, NULL},
    {"seen", seen, METH_O, NULL},
    {"sharing", sharing, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tensor_call", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_tensor_call(void) {
    PyObject *m = PyModule_Create(&module);
    if (!m) return NULL;
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(m, "TensorCall", type)) {
        Py_XDECREF(type);
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
