/* What `describe` of graph/record.py does, in C: the structure of what was recorded, and what it is to
   be computed with. Part of door.c. */

/* Numbers of computed operands, by address: open addressing. */
typedef struct { PyObject **keys; Py_ssize_t *numbers, mask; } Table;

static Py_ssize_t *place_of(Table *t, PyObject *key) {
    size_t at = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u >> 20;
    for (;; at++) {
        at &= (size_t)t->mask;
        if (!t->keys[at]) { t->keys[at] = key, t->numbers[at] = -1; }
        if (t->keys[at] == key) return &t->numbers[at];
    }
}

static inline int waits(PyObject *node) { return get(node, lazy.value) == Py_None; }
static inline Py_ssize_t index_of(PyObject *node) { return PyLong_AsSsize_t(get(node, lazy.index)); }
static int set_index(PyObject *node, Py_ssize_t i) {
    PyObject *before = get(node, lazy.index), *number = PyLong_FromSsize_t(i);
    if (!number) return -1;
    put(node, lazy.index, number);
    Py_XDECREF(before);
    return 0;
}

/* Whether nobody but a node refers to its array, or to the memory that it is a view of. */
static int is_unshared(PyObject *leaf) {
    PyObject *array = get(leaf, lazy.value);
    if (Py_REFCNT(array) > 1) return 0;
    PyObject *base = PyObject_GetAttr(array, s_base);
    if (!base) { PyErr_Clear(); return 0; }
    int alone = base == Py_None || Py_REFCNT(base) <= 2; /* the array's and ours */
    Py_DECREF(base);
    return alone;
}

/* The numbers of the leaves whose memory only this recording refers to. */
static PyObject *donated_leaves(PyObject *leaves, const Py_ssize_t *uses) {
    PyObject *donated = PyList_New(0);
    for (Py_ssize_t i = 0; donated && i < PyList_GET_SIZE(leaves); i++) {
        PyObject *leaf = PyList_GET_ITEM(leaves, i);
        if (get(leaf, lazy.owned) != Py_True || Py_REFCNT(leaf) - uses[i] > 1 || !is_unshared(leaf)) continue;
        PyObject *number = PyLong_FromSsize_t(i);
        if (!number || PyList_Append(donated, number)) Py_CLEAR(donated);
        Py_XDECREF(number);
    }
    return donated;
}

/* Number the nodes and count their uses among each other; `links`: of all operands. 0 if an operand
   waits elsewhere: in another thread, or in a list that was taken. */
static int count_uses(PyObject *pending, Py_ssize_t *uses, Py_ssize_t *links) {
    Py_ssize_t size = PyList_GET_SIZE(pending);
    for (Py_ssize_t i = 0; i < size; i++)
        if (set_index(PyList_GET_ITEM(pending, i), i)) return -1;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *inputs = get(PyList_GET_ITEM(pending, i), lazy.inputs);
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inputs); j++, ++*links) {
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
static Py_ssize_t mark_needed(PyObject *pending, const Py_ssize_t *uses, char *needed) {
    Py_ssize_t found = 0;
    for (Py_ssize_t i = PyList_GET_SIZE(pending) - 1; i >= 0; i--) {
        PyObject *node = PyList_GET_ITEM(pending, i), *inputs = get(node, lazy.inputs);
        if (!waits(node)) { needed[i] = 0; continue; }
        if (Py_REFCNT(node) - uses[i] > 1) needed[i] = 2;
        if (!needed[i]) continue;
        found++;
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inputs); j++) {
            PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
            if (waits(operand) && !needed[index_of(operand)]) needed[index_of(operand)] = 1;
        }
    }
    return found;
}

/* What `encode` fills: the parts of a Recording. */
typedef struct { PyObject *code, *nodes, *leaves, *scalars, *outputs; Table table; Py_ssize_t *uses; } Parts;

static int add(PyObject *list, Py_ssize_t number) {
    PyObject *made = PyLong_FromSsize_t(number);
    int failed = !made || PyList_Append(list, made);
    Py_XDECREF(made);
    return failed;
}

/* One needed node into the code. */
static int encode(Parts *p, PyObject *node, int needed) {
    PyObject *inputs = get(node, lazy.inputs), *scalar = get(node, lazy.scalar);
    PyObject *number = PyObject_GetAttr(get(node, lazy.signature), s_number);
    if (!number || PyList_Append(p->code, number)) { Py_XDECREF(number); return -1; }
    Py_DECREF(number);
    for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inputs); j++) {
        PyObject *operand = PySequence_Fast_GET_ITEM(inputs, j);
        if (waits(operand)) {
            if (PyList_Append(p->code, get(operand, lazy.index))) return -1;
            continue;
        }
        Py_ssize_t *at = place_of(&p->table, operand);
        if (*at < 0) {
            *at = PyList_GET_SIZE(p->leaves);
            p->uses[*at] = 0;
            if (PyList_Append(p->leaves, operand)) return -1;
        }
        p->uses[*at]++;
        if (add(p->code, -1 - *at)) return -1;
    }
    Py_ssize_t at = PyList_GET_SIZE(p->nodes);
    if (scalar != Py_None && PyList_Append(p->scalars, scalar)) return -1;
    if (needed == 2 && add(p->outputs, at)) return -1;
    return set_index(node, at) || PyList_Append(p->nodes, node) ? -1 : 0;
}

/* The specs of the leaves and the outputs at the end of the code. */
static int close_code(Parts *p, PyObject *spec_numbers) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(p->leaves); i++) {
        PyObject *number = PyObject_GetItem(spec_numbers, get(PyList_GET_ITEM(p->leaves, i), lazy.spec));
        int failed = !number || PyList_Append(p->code, number);
        Py_XDECREF(number);
        if (failed) return -1;
    }
    if (add(p->code, -1)) return -1;
    return PyList_SetSlice(p->code, PyList_GET_SIZE(p->code), PyList_GET_SIZE(p->code), p->outputs);
}

/* describe(pending, wanted, spec_numbers) -> the parts of a Recording; () if nothing is needed; None if
   an operand waits elsewhere. As `describe` of graph/record.py. */
static PyObject *describe(PyObject *self, PyObject *const *in, Py_ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "describe: expected 3 arguments; got %zd.", count);
    PyObject *pending = in[0], *result = NULL, *donated = NULL;
    Py_ssize_t size = PyList_GET_SIZE(pending), links = 0, room = 64;
    Parts p = {.uses = NULL};
    Py_ssize_t *uses = PyMem_Calloc((size_t)size + 1, sizeof *uses);
    char *needed = PyMem_Calloc((size_t)size + 1, 1);
    if (!uses || !needed) { PyErr_NoMemory(); goto done; }
    int sound = count_uses(pending, uses, &links);
    if (sound < 0) goto done;
    if (!sound) { result = new(Py_None); goto done; }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(in[1]); i++) {
        PyObject *node = PySequence_Fast_GET_ITEM(in[1], i);
        if (waits(node)) needed[index_of(node)] = 2;
    }
    if (!mark_needed(pending, uses, needed)) { result = PyTuple_New(0); goto done; }
    while (room < 2 * links + 2) room *= 2;
    p.code = PyList_New(0), p.nodes = PyList_New(0), p.leaves = PyList_New(0);
    p.scalars = PyList_New(0), p.outputs = PyList_New(0);
    p.table = (Table){PyMem_Calloc((size_t)room, sizeof(PyObject *)),
                      PyMem_Malloc((size_t)room * sizeof(Py_ssize_t)), room - 1};
    p.uses = PyMem_Malloc(((size_t)links + 1) * sizeof *p.uses);
    if (!p.code || !p.nodes || !p.leaves || !p.scalars || !p.outputs) goto done;
    if (!p.table.keys || !p.table.numbers || !p.uses) { PyErr_NoMemory(); goto done; }
    for (Py_ssize_t i = 0; i < size; i++)
        if (needed[i] && encode(&p, PyList_GET_ITEM(pending, i), needed[i])) goto done;
    if (close_code(&p, in[2]) || !(donated = donated_leaves(p.leaves, p.uses))) goto done;
    PyObject *code = PyList_AsTuple(p.code);
    if (code) result = Py_BuildValue("(NOOOOO)", code, p.nodes, p.leaves, p.scalars, p.outputs, donated);
done:
    PyMem_Free(uses);
    PyMem_Free(needed);
    PyMem_Free(p.uses);
    PyMem_Free(p.table.keys);
    PyMem_Free(p.table.numbers);
    Py_XDECREF(p.code);
    Py_XDECREF(p.nodes);
    Py_XDECREF(p.leaves);
    Py_XDECREF(p.scalars);
    Py_XDECREF(p.outputs);
    Py_XDECREF(donated);
    return result;
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
