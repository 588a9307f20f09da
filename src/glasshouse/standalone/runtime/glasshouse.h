/* Programs that glasshouse compiled, without Python. C11, libc and libm; with GH_ONEDNN defined, oneDNN.

   A program is constant. A context has its state (weights, an optimizer's moments, numbers, random
   generators) and its arena in one block of memory. Contexts share nothing, so each may run in a
   thread of its own; one context belongs to one thread at a time. Functions return GH_OK or another
   code, and gh_error has the text for the context. Tensors are row-major. */
#ifndef GLASSHOUSE_H
#define GLASSHOUSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GH_MOST_AXES = 8 };

typedef enum {
  GH_OK,
  GH_ARGUMENT, /* a null pointer, or another number of tensors */
  GH_SHAPE,    /* a tensor of another shape */
  GH_DTYPE,    /* a tensor of another dtype */
  GH_NAME,     /* no state of that name */
  GH_MEMORY,   /* no memory, or too little was given */
  GH_FILE,     /* a file cannot be read or written */
  GH_FORMAT,   /* a file that is no safetensors file, or lacks something */
  GH_INDEX,    /* an index out of range, in a gather for example: the state may have changed in part */
  GH_STEP,     /* a step of the program failed */
  GH_LIBRARY   /* oneDNN lacks a step of the program */
} gh_code;

typedef enum {
  GH_BOOL, GH_I8, GH_I16, GH_I32, GH_I64, GH_U8, GH_U16, GH_U32, GH_U64, GH_F16, GH_BF16, GH_F32, GH_F64
} gh_dtype;

/* A tensor of the caller's: `shape` has `axes` sizes. */
typedef struct {
  gh_dtype dtype;
  int axes;
  const int64_t *shape;
  void *data;
} gh_tensor;

/* What a program expects, gives, or keeps. */
typedef struct {
  const char *name;
  gh_dtype dtype;
  int axes;
  int64_t shape[GH_MOST_AXES];
} gh_spec;

typedef struct gh_program gh_program;
typedef struct gh_context gh_context;

/* A context with all of its state zero, in new memory or in `memory` of gh_bytes(program) bytes, which
   is the caller's and lies at a multiple of 64. gh_free takes either, and NULL. With oneDNN, the first
   run in each size makes its primitives, in memory of theirs. */
gh_code gh_create(const gh_program *program, gh_context **context);
gh_code gh_create_in(const gh_program *program, void *memory, size_t bytes, gh_context **context);
void gh_free(gh_context *context);
size_t gh_bytes(const gh_program *program);

/* Runs the program once, in the size that the inputs have. Where a count, shape or dtype is wrong,
   nothing is written. */
gh_code gh_program_run(gh_context *context, const gh_tensor *inputs, int input_count,
                       const gh_tensor *outputs, int output_count);

/* The state, as a safetensors file: all of it is there or nothing changes. Saving replaces a file when
   it is complete. gh_copy gives one program the state that it has in common with another. */
gh_code gh_load(gh_context *context, const char *path);
gh_code gh_load_memory(gh_context *context, const void *data, size_t bytes); /* of a file */
gh_code gh_save(gh_context *context, const char *path);
gh_code gh_copy(gh_context *to, const gh_context *from);

/* Numbers of the state by name: "lr", for example. */
gh_code gh_set(gh_context *context, const char *name, double value);
gh_code gh_get(const gh_context *context, const char *name, double *value);

/* The first draw of a seed, as gh.manual_seed does it, for all generators. */
gh_code gh_seed(gh_context *context, uint64_t seed);

/* The memory of a state, at most until gh_free. */
gh_code gh_state(gh_context *context, const char *name, const gh_spec **spec, void **data);

/* What a program has: the number of its specs, and one by its number, NULL for none. */
int gh_input_count(const gh_program *program);
int gh_output_count(const gh_program *program);
int gh_state_count(const gh_program *program);
const gh_spec *gh_input(const gh_program *program, int number);
const gh_spec *gh_output(const gh_program *program, int number);
const gh_spec *gh_state_spec(const gh_program *program, int number);

/* A program of several sizes: how many, and the program of one by its number, NULL for none. The first
   is the program itself. Its context runs all. */
int gh_size_count(const gh_program *program);
const gh_program *gh_size(const gh_program *program, int number);

/* The text of the last error of a context; of a code alone where there is no context. */
const char *gh_error(const gh_context *context);
const char *gh_text(gh_code code);

#ifdef __cplusplus
}
#endif
#endif
