/* Runs the steps of a Program: one call from Python, no Python inside.

   A step has a function and coded arguments. The upper byte of an argument says what it is: an
   offset in the arena, the number (16 bits) of an input or output and an offset in it, the number
   of a scalar, the error flag. A oneDNN step has its primitive in `extra`. A host step stops the run: the
   caller does it, and goes on behind it. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { ARENA, INPUT, OUTPUT, SCALAR, ERROR };
enum { KERNEL, ONEDNN, HOST };

typedef struct { int arg; void *memory; } ExecArg; /* dnnl_exec_arg_t */

typedef struct { void *primitive, *stream; ExecArg *args; } Onednn;

typedef struct {
  int32_t kind, count;
  void *function; /* void (*)(void **) */
  const int64_t *args;
  Onednn *extra;
} Step;

typedef int (*SetHandle)(void *memory, void *address);
typedef int (*Execute)(const void *primitive, void *stream, int count, const ExecArg *args);

static SetHandle set_handle;
static Execute execute;

void gh_use_onednn(void *set, void *run) {
  set_handle = (SetHandle)set;
  execute = (Execute)run;
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The address that a coded argument stands for. */
static void *address(int64_t code, char *arena, void **inputs, void **outputs, int64_t *scalars,
                     int64_t *error) {
  const int64_t rest = code & 0xFFFFFFFFFFFFFF;
  switch (code >> 56) {
    case ARENA: return arena + rest;
    case INPUT: return (char *)inputs[rest & 0xFFFF] + (rest >> 16);
    case OUTPUT: return (char *)outputs[rest & 0xFFFF] + (rest >> 16);
    case SCALAR: return scalars + rest;
    default: return error;
  }
}

/* Replaces NumPy arrays by where their data lie: an array begins with its count, its type, and this
   address. The caller checks once that it is so. */
void gh_addresses(void **arrays, int64_t count) {
  for (int64_t i = 0; i < count; i++) arrays[i] = ((void **)arrays[i])[2];
}

/* Runs the steps from `begin`; returns the first step it did not do: `end`, a host step, or
   -1 - step where oneDNN failed; it stops where the error flag is set. `ends_ns` gets the time at the end of each step, if it is given. */
int64_t gh_run(const Step *steps, int64_t begin, int64_t end, char *arena, void **inputs,
               void **outputs, int64_t *scalars, int64_t *error, int64_t *ends_ns) {
  int32_t most = 1;
  for (int64_t i = begin; i < end; i++)
    if (steps[i].count > most) most = steps[i].count;
  void *a[most];
  for (int64_t i = begin; i < end; i++) {
    const Step *step = steps + i;
    if (step->kind == HOST || *error) return i;
    for (int32_t k = 0; k < step->count; k++)
      a[k] = address(step->args[k], arena, inputs, outputs, scalars, error);
    if (step->kind == KERNEL) {
      ((void (*)(void **))step->function)(a);
    } else {
      Onednn *x = step->extra;
      for (int32_t k = 0; k < step->count; k++) set_handle(x->args[k].memory, a[k]);
      if (execute(x->primitive, x->stream, step->count, x->args)) return -1 - i;
    }
    if (ends_ns) ends_ns[i] = now_ns();
  }
  return end;
}
