/* Runs the steps of a Program: one call from Python, no Python inside.

   A step has a function and coded arguments. The upper byte of an argument says what it is: an
   offset in the arena, the number (16 bits) of an input or output and an offset in it, the number
   of a scalar, the error flag, or a size, which is itself the argument. A kernel takes them; with
   `extra`, the function is a target's, which takes that as well and returns 0 where all is well. A
   step without a function stops the run: it is the host's. The caller does it, and continues after
   it. A target's function that returns LATER leaves the rest of its step to the caller too. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { ARENA, INPUT, OUTPUT, SCALAR, ERROR, SIZE };
enum { LATER = 2 };

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
    if (!step->extra) {
      ((Kernel)step->function)(a);
    } else {
      const int code = ((Call)step->function)(step->extra, a, (int32_t)step->count);
      if (code) return code == LATER ? i : -1 - i;
    }
    if (ends_ns) ends_ns[i] = now_ns();
  }
  return end;
}

/* Where a number that is not finite is looked for: all of a mask's bits are set in its exponent. Of
   an array with several rows, the first row and the first column are looked at each time, and now
   and then the `whole` of its numbers. */
typedef struct { int64_t output, rows, columns, whole, bytes, mask; } Look;

/* Looks in a run: the first `early` of them before the step `update`, from which on inputs may be
   overwritten, the others at the end. Wholes are looked at in turn, in at most a `part` of the
   time. `bad` is the output with a number that is not finite, or -1. */
typedef struct {
  double part;
  int64_t update, early, count, bad, turn, run_ns, look_ns;
  const Look *looks;
} Watch;

static int has_bad(const char *data, int64_t count, int64_t step, const Look *look) {
  int bad = 0;
#define LOOK_BY(STEP)                                                          \
  for (int64_t i = 0; i < count; i++) found |= (x[i * (STEP)] & ones) == ones
#define LOOK(T)                                                                \
  const T *x = (const T *)data, ones = (T)look->mask;                          \
  T found = 0;                                                                 \
  if (step == 1) LOOK_BY(1);                                                   \
  else LOOK_BY(step);                                                          \
  bad = found != 0;
  if (look->bytes == 1) {
    LOOK(uint8_t)
  } else if (look->bytes == 2) {
    LOOK(uint16_t)
  } else if (look->bytes == 4) {
    LOOK(uint32_t)
  } else {
    LOOK(uint64_t)
  }
  return bad;
}

static int64_t passed_ns(int64_t *since) {
  const int64_t before = *since;
  return (*since = now_ns()) - before;
}

static int64_t first_bad(Watch *w, int64_t begin, int64_t end, void **outputs, int64_t *since) {
  w->run_ns += passed_ns(since);
  for (int64_t i = begin; i < end; i++) {
    const Look *x = w->looks + i;
    const char *data = outputs[x->output];
    if (has_bad(data, x->columns, 1, x)) return x->output;
    if (x->rows > 1 && has_bad(data, x->rows, x->columns, x)) return x->output;
  }
  w->look_ns += passed_ns(since);
  for (int64_t k = begin; k < end && begin <= w->turn && w->turn < end; k++) {
    const Look *x = w->looks + w->turn;
    if (x->whole > x->columns) {
      if (w->look_ns > w->part * w->run_ns) break;
      if (has_bad(outputs[x->output], x->whole, 1, x)) return x->output;
      w->look_ns += passed_ns(since);
    }
    w->turn = (w->turn + 1) % w->count;
  }
  return -1;
}

/* Runs steps as gh_run does, and looks at results; it stops where it finds a number that is not
   finite. */
int64_t gh_run_watched(const Step *steps, int64_t begin, int64_t end, char *arena, void **inputs,
                       void **outputs, int64_t *scalars, int64_t *error, int64_t *ends_ns,
                       Watch *w) {
  int64_t since = now_ns();
  const int64_t update = w->update;
  w->bad = -1;
  begin = gh_run(steps, begin, update, arena, inputs, outputs, scalars, error, ends_ns);
  if (begin != update) return begin;
  w->bad = first_bad(w, 0, w->early, outputs, &since);
  if (w->bad >= 0) return update;
  begin = gh_run(steps, update, end, arena, inputs, outputs, scalars, error, ends_ns);
  if (begin == end) w->bad = first_bad(w, w->early, w->count, outputs, &since);
  return begin;
}

/* A loop: the steps of a body, the first `once` of them before the loop. Its arguments are scratch
   memory, where the body's arena begins, the error flag, and pointers that the tables below number.
   An input of the body is a value carried from step to step, which begins at an argument, or an
   argument and how far it moves with each step. An output lies in a stack, or at an argument or in
   scratch memory, every other time at a spare place if it has one. A copy brings an output, each
   time or, if it is carried, at the end, to where else it is wanted. A loop with a gate goes on while
   the carried boolean of that number is true; what it did not come to stack is zero. Where nothing is carried, lanes
   may share the steps out: each has a table of the body and `lane_bytes` of the scratch memory. */
typedef struct { int64_t carried, arg, step; } LoopInput;
typedef struct { int64_t stack, step, arg, place, spare; } LoopOutput;
typedef struct { int64_t output, carried, arg, bytes; } LoopCopy;

typedef struct {
  const Step *steps;
  int64_t once, count, length, reverse, lanes, lane_bytes, gate;
  int64_t input_count, output_count, carry_count, copy_count;
  const LoopInput *inputs;
  const LoopOutput *outputs;
  const int64_t *carried;
  const LoopCopy *copies;
} Loop;

static void *loop_output(const LoopOutput *x, void **a, int64_t t, int64_t left) {
  if (x->stack >= 0) return (char *)a[x->stack] + t * x->step;
  if (x->spare >= 0 && left % 2) return (char *)a[0] + x->spare;
  return x->arg >= 0 ? a[x->arg] : (char *)a[0] + x->place;
}

/* What a gated loop leaves after `done` steps: what it carried, and zeros. */
static void end_early(const Loop *x, void **a, void **carried, int64_t done) {
  for (int64_t i = 0; i < x->copy_count; i++) {
    const LoopCopy *c = x->copies + i;
    if (c->carried >= 0) memcpy(a[c->arg], carried[c->carried], c->bytes);
  }
  for (int64_t k = done; k < x->length; k++) {
    const int64_t t = x->reverse ? x->length - 1 - k : k;
    int stacks = 0;
    for (int64_t i = 0; i < x->output_count; i++) {
      const LoopOutput *out = x->outputs + i;
      if (out->stack < 0) continue;
      memset((char *)a[out->stack] + t * out->step, 0, out->step);
      stacks = 1;
    }
    for (int64_t i = 0; i < x->copy_count; i++) {
      const LoopCopy *c = x->copies + i;
      if (c->carried >= 0) continue;
      memset((char *)a[c->arg] + t * c->bytes, 0, c->bytes);
      stacks = 1;
    }
    if (!stacks) return;
  }
}

static int run_lane(const Loop *x, void **a, int64_t lane) {
  const int64_t begin = lane * x->length / x->lanes, end = (lane + 1) * x->length / x->lanes;
  const Step *steps = x->steps + lane * x->count;
  void *inputs[x->input_count + 1], *outputs[x->output_count + 1], *carried[x->carry_count + 1];
  int64_t *error = a[1];
  for (int64_t i = 0; i < x->input_count; i++)
    if (x->inputs[i].carried >= 0) carried[x->inputs[i].carried] = a[x->inputs[i].arg];
  int64_t k = begin;
  for (; k < end; k++) {
    const int64_t left = x->length - 1 - k, t = x->reverse ? left : k;
    if (x->gate >= 0 && !*(const char *)carried[x->gate]) break;
    for (int64_t i = 0; i < x->input_count; i++) {
      const LoopInput *in = x->inputs + i;
      inputs[i] = in->carried >= 0 ? carried[in->carried] : (char *)a[in->arg] + t * in->step;
    }
    for (int64_t i = 0; i < x->output_count; i++)
      outputs[i] = loop_output(x->outputs + i, a, t, left);
    if (gh_run(steps, k > begin ? x->once : 0, x->count, a[0], inputs, outputs, NULL, error,
               NULL) != x->count)
      return *error ? 0 : 1;
    for (int64_t j = 0; j < x->carry_count; j++) carried[j] = outputs[x->carried[j]];
    for (int64_t i = 0; i < x->copy_count; i++) {
      const LoopCopy *c = x->copies + i;
      if (c->carried < 0)
        memcpy((char *)a[c->arg] + t * c->bytes, outputs[c->output], c->bytes);
      else if (!left && x->gate < 0)
        memcpy(a[c->arg], outputs[c->output], c->bytes);
    }
  }
  if (x->gate >= 0) end_early(x, a, carried, k);
  return 0;
}

int gh_run_loop(const Loop *x, void **a, int32_t count) {
  if (x->lanes == 1) return run_lane(x, a, 0);
  int failed = 0;
#pragma omp parallel for schedule(static) reduction(| : failed)
  for (int64_t lane = 0; lane < x->lanes; lane++) {
    void *own[count];
    memcpy(own, a, count * sizeof *own);
    own[0] = (char *)a[0] + lane * x->lane_bytes;
    failed |= run_lane(x, own, lane);
  }
  return failed;
}
