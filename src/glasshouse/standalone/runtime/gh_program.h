/* How a program is described to glasshouse.c: generated tables. Steps and loops are those of
   gh_runner.c. */
#ifndef GH_PROGRAM_H
#define GH_PROGRAM_H

#include "glasshouse.h"

typedef struct { void *function, *extra; const int64_t *args; int64_t count; } gh_step;

typedef struct { int64_t carried, arg, step; } gh_loop_input;
typedef struct { int64_t stack, step, arg, place, spare; } gh_loop_output;
typedef struct { int64_t output, carried, arg, bytes; } gh_loop_copy;
typedef struct {
  const gh_step *steps;
  int64_t once, count, length, reverse, lanes, lane_bytes, gate;
  int64_t input_count, output_count, carry_count, copy_count;
  const gh_loop_input *inputs;
  const gh_loop_output *outputs;
  const int64_t *carried;
  const gh_loop_copy *copies;
} gh_loop;
int gh_run_loop(const void *loop, void **args, int32_t count);

/* Where a value is: in an argument, or (-1) at a place in the block. */
typedef struct { int argument; int64_t at; } gh_place;

/* A value that is copied to a row-major place after a run; strides in elements. */
typedef struct {
  gh_place from;
  int64_t to;
  int size, axes;
  int64_t shape[GH_MOST_AXES], strides[GH_MOST_AXES];
} gh_move;

/* A key of the random numbers: where the generator's state lies, and where the key is put. */
typedef struct { int64_t generator, at; } gh_key;

/* A library that a program calls: before a run, `prepare` replaces its steps by those of a context. `make`
   makes objects of these kinds in their order; `call` is the one that failed. */
typedef struct {
  gh_code (*prepare)(gh_context *context, const gh_program *program, const gh_step **steps);
  void (*release)(void *prepared);
  int (*make)(void **objects, void *engine, const char **call);
  const char *kinds;
} gh_library;

struct gh_program {
  const char *name;
  int64_t block_bytes, arena_at;
  int64_t steps, inputs, outputs, states, fetches, results, scalars, keys, moves;
  const gh_step *step;
  const gh_spec *input, *output, *state;
  const int64_t *state_at; /* in the block */
  const gh_place *fetch;   /* inputs of the steps */
  const int64_t *result;   /* places of the steps' outputs in the block */
  const gh_key *key;
  const gh_move *gives;    /* of each output; `to` is unused */
  const gh_move *move;     /* into the state */
  int64_t others;          /* programs of other sizes, which have the same state and block */
  const gh_program *const *other;
  const gh_library *library; /* NULL for none */
  void (*numbers)(const char *block, int64_t *scalars); /* what steps read */
  void (*advance)(char *block);                         /* numbers of the state after a run */
};
#endif
