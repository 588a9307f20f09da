/* A frame of CPython's evaluator, which each version keeps in its own way: 3.14 has tagged references
   (_PyStackRef), of which some borrow what a frame below owns. */
#ifndef INTERPRETER_FRAME_H
#define INTERPRETER_FRAME_H
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000 || defined(Py_GIL_DISABLED)
#error "the frames of this interpreter are not known"
#endif
#define Py_BUILD_CORE 1
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#endif
#undef Py_BUILD_CORE

#if PY_VERSION_HEX >= 0x030D0000
#define FRAME_IP(f) ((f)->instr_ptr)
#define ENTRY_IP(co) (_PyCode_CODE(co)) /* of a frame that has not begun */
#define CURRENT_FRAME(thread) ((thread)->current_frame)
#else
#define FRAME_IP(f) ((f)->prev_instr)
#define ENTRY_IP(co) (_PyCode_CODE(co) - 1)
#define CURRENT_FRAME(thread) ((thread)->cframe->current_frame)
#endif

/* References that these return are borrowed; the setters take the reference that they are given. */
static inline PyCodeObject *frame_code(_PyInterpreterFrame *f) {
#if PY_VERSION_HEX >= 0x030E0000
    return (PyCodeObject *)PyStackRef_AsPyObjectBorrow(f->f_executable);
#elif PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)f->f_executable;
#else
    return f->f_code;
#endif
}
static inline PyFunctionObject *frame_function(_PyInterpreterFrame *f) {
#if PY_VERSION_HEX >= 0x030E0000
    return (PyFunctionObject *)PyStackRef_AsPyObjectBorrow(f->f_funcobj);
#elif PY_VERSION_HEX >= 0x030C0000
    return (PyFunctionObject *)f->f_funcobj;
#else
    return f->f_func;
#endif
}
static inline PyObject *frame_local(_PyInterpreterFrame *f, Py_ssize_t i) { /* NULL: unset */
#if PY_VERSION_HEX >= 0x030E0000
    return PyStackRef_IsNull(f->localsplus[i]) ? NULL : PyStackRef_AsPyObjectBorrow(f->localsplus[i]);
#else
    return f->localsplus[i];
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
static inline void set_frame_local(_PyInterpreterFrame *f, Py_ssize_t i, PyObject *value) {
#if PY_VERSION_HEX >= 0x030E0000
    _PyStackRef old = f->localsplus[i];
    f->localsplus[i] = value ? PyStackRef_FromPyObjectSteal(value) : PyStackRef_NULL;
    PyStackRef_XCLOSE(old);
#else
    Py_XSETREF(f->localsplus[i], value);
#endif
}
/* Have a frame begin other code, whose locals are in their places. */
static inline void set_frame_code(_PyInterpreterFrame *f, PyCodeObject *code) {
    FRAME_IP(f) = ENTRY_IP(code);
#if PY_VERSION_HEX >= 0x030E0000
    _PyStackRef old = f->f_executable;
    f->stackpointer = f->localsplus + code->co_nlocalsplus;
    f->f_executable = PyStackRef_FromPyObjectSteal((PyObject *)code);
    PyStackRef_XCLOSE(old);
#else
    PyCodeObject *old = frame_code(f);
    f->stacktop = code->co_nlocalsplus;
#if PY_VERSION_HEX >= 0x030D0000
    f->f_executable = (PyObject *)code;
#else
    f->f_code = code;
#endif
    Py_DECREF(old);
#endif
}
#endif
#endif
