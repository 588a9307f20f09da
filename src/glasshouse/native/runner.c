/* Runs the steps of a Program: one call from Python, no Python inside.

   A step has a function and coded arguments. The upper byte of an argument says what it is: an
   offset in the arena, the number (16 bits) of an input or output and an offset in it, the number
   of a scalar, the error flag, or a size, which is itself the argument. A kernel takes them; with
   `extra`, the function is a target's, which takes that as well and returns 0 where all is well. A
   step without a function stops the run: it is the host's. The caller does it, and goes on behind
   it. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { ARENA, INPUT, OUTPUT, SCALAR, ERROR, SIZE };

typedef void (*Kernel)(void **args);
typedef int (*Call)(void *extra, void **args, int32_t count);

typedef struct {
  void *function, *extra;
  const int64_t *args;
  int64_t count;
} Step;

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
    case SIZE: return (void *)((int64_t)((uint64_t)code << 8) >> 8);
    default: return error;
  }
}

/* Replaces NumPy arrays by where their data lie: an array begins with its count, its type, and this
   address. The caller checks once that it is so. */
void gh_addresses(void **arrays, int64_t count) {
  for (int64_t i = 0; i < count; i++) arrays[i] = ((void **)arrays[i])[2];
}

/* Runs the steps from `begin`; returns the first step it did not do: `end`, a host step, or
   -1 - step where a target's function failed; it stops where the error flag is set. `ends_ns` gets
   the time at the end of each step, if it is given. */
int64_t gh_run(const Step *steps, int64_t begin, int64_t end, char *arena, void **inputs,
               void **outputs, int64_t *scalars, int64_t *error, int64_t *ends_ns) {
  int64_t most = 1;
  for (int64_t i = begin; i < end; i++)
    if (steps[i].count > most) most = steps[i].count;
  void *a[most];
  for (int64_t i = begin; i < end; i++) {
    const Step *step = steps + i;
    if (!step->function || *error) return i;
    for (int64_t k = 0; k < step->count; k++)
      a[k] = address(step->args[k], arena, inputs, outputs, scalars, error);
    if (!step->extra)
      ((Kernel)step->function)(a);
    else if (((Call)step->function)(step->extra, a, (int32_t)step->count))
      return -1 - i;
    if (ends_ns) ends_ns[i] = now_ns();
  }
  return end;
}
