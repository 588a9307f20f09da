/* Programs whose products and convolutions are oneDNN's: built where GH_ONEDNN is defined.

   A context makes its own primitives before its first run in a size, so contexts share nothing. They
   are made as those of the Program were, by the same calls: a processor other than that of the export
   may choose other layouts, and where these take more memory than the plan has, they get it here. */
#ifdef GH_ONEDNN
#include "gh_onednn.h"

#include <stdlib.h>
#include <string.h>

#include "gh_context.h"

enum { CPU = 1, IN_ORDER = 1, OUT_OF_MEMORY = 1, UNIMPLEMENTED = 3, USERS_SCRATCHPAD = 1, ALIGNMENT = 64 };

typedef struct { int arg; void *memory; } ExecArg; /* dnnl_exec_arg_t */

int dnnl_engine_create(void **, int kind, size_t index);
int dnnl_stream_create(void **, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_primitive_attr_create(void **);
int dnnl_primitive_attr_set_scratchpad_mode(void *attributes, int mode);
const void *dnnl_primitive_desc_query_md(const void *primitive, int what, int index);
size_t dnnl_memory_desc_get_size(const void *layout);
int dnnl_memory_create(void **, const void *layout, void *engine, void *data);
int dnnl_memory_set_data_handle(void *memory, void *data);
int dnnl_primitive_create(void **, const void *description);
int dnnl_primitive_execute(const void *primitive, void *stream, int count, const ExecArg *args);
int dnnl_engine_destroy(void *);
int dnnl_stream_destroy(void *);
int dnnl_memory_destroy(void *);
int dnnl_memory_desc_destroy(void *);
int dnnl_primitive_attr_destroy(void *);
int dnnl_primitive_desc_destroy(void *);
int dnnl_primitive_destroy(void *);

typedef struct Piece { struct Piece *next; } Piece; /* of memory, before what it holds */

/* A place of the plan that has too little memory: that of an argument in a table of steps. */
typedef struct Place {
  struct Place *next;
  const gh_step *table;
  int64_t argument;
  size_t bytes;
  void *memory;
} Place;

typedef struct Run {
  struct Run *next;
  void *primitive, *stream;
  ExecArg *args;
  Place **places; /* NULL for an argument that lies where the plan has it */
  int count;
} Run;

/* A program of one size in a context. */
typedef struct Prepared {
  struct Prepared *next;
  const gh_program *program;
  const gh_step *steps;
  void *engine, *stream, **objects, **primitives;
  Run *runs;
  Place *places;
  Piece *pieces;
} Prepared;

int gh_onednn_query(void **layout, const void *primitive, int what) {
  *layout = (void *)dnnl_primitive_desc_query_md(primitive, what, 0);
  return *layout ? 0 : UNIMPLEMENTED;
}

int gh_onednn_attributes(void **attributes) {
  const int status = dnnl_primitive_attr_create(attributes);
  return status ? status : dnnl_primitive_attr_set_scratchpad_mode(*attributes, USERS_SCRATCHPAD);
}

int gh_run_onednn(const void *run, void **args, int32_t count) {
  const Run *x = run;
  for (int32_t k = 0; k < count; k++)
    dnnl_memory_set_data_handle(x->args[k].memory, x->places[k] ? x->places[k]->memory : args[k]);
  const int status = dnnl_primitive_execute(x->primitive, x->stream, count, x->args);
  return status ? status : dnnl_stream_wait(x->stream);
}

/* ---- making ------------------------------------------------------------------------------- */

/* Zeros, which live as long as the program in the context. */
static void *take(Prepared *s, size_t bytes) {
  const size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
  Piece *piece = aligned_alloc(ALIGNMENT, whole);
  if (!piece) return NULL;
  memset(piece, 0, whole);
  piece->next = s->pieces;
  s->pieces = piece;
  return (char *)piece + ALIGNMENT;
}

static Place *place_of(Prepared *s, const gh_step *table, int64_t argument, size_t bytes) {
  Place *place = s->places;
  while (place && (place->table != table || place->argument != argument)) place = place->next;
  if (!place) {
    place = take(s, sizeof *place);
    if (!place) return NULL;
    place->next = s->places;
    place->table = table;
    place->argument = argument;
    s->places = place;
  }
  if (bytes > place->bytes) place->bytes = bytes;
  return place;
}

static int make_run(Prepared *s, const gh_step *table, gh_step *step, const char **call) {
  const gh_onednn_call *x = step->extra;
  Run *run = take(s, sizeof *run);
  if (!run || !(run->args = take(s, (size_t)x->count * sizeof *run->args))) return OUT_OF_MEMORY;
  if (!(run->places = take(s, (size_t)x->count * sizeof *run->places))) return OUT_OF_MEMORY;
  run->next = s->runs;
  run->count = x->count;
  run->stream = s->stream;
  s->runs = run;
  void **primitive = s->primitives + x->primitive;
  if (!*primitive) GH_TRY(dnnl_primitive_create(primitive, s->objects[x->primitive]));
  run->primitive = *primitive;
  for (int k = 0; k < x->count; k++) {
    const gh_onednn_arg *arg = x->args + k;
    const void *layout = s->objects[arg->layout];
    const size_t bytes = dnnl_memory_desc_get_size(layout);
    run->args[k].arg = arg->arg;
    GH_TRY(dnnl_memory_create(&run->args[k].memory, layout, s->engine, NULL));
    if (bytes <= (size_t)arg->bytes) continue;
    run->places[k] = place_of(s, table, step->args[k], bytes);
    if (!run->places[k]) return OUT_OF_MEMORY;
  }
  step->extra = run;
  return 0;
}

/* Copies steps, with the context's own primitives. Loops have one lane: oneDNN shares out its steps. */
static int own_steps(Prepared *s, const gh_step *table, int64_t count, const gh_step **own, const char **call) {
  gh_step *steps = take(s, (size_t)count * sizeof *steps);
  int status = steps ? 0 : OUT_OF_MEMORY;
  for (int64_t i = 0; !status && i < count; i++) {
    steps[i] = table[i];
    if (steps[i].function == (void *)gh_run_onednn) status = make_run(s, table, steps + i, call);
    if (status || steps[i].function != (void *)gh_run_loop) continue;
    gh_loop *loop = take(s, sizeof *loop);
    if (!loop) return OUT_OF_MEMORY;
    *loop = *(const gh_loop *)table[i].extra;
    loop->lanes = 1;
    steps[i].extra = loop;
    status = own_steps(s, loop->steps, loop->count, &loop->steps, call);
  }
  *own = steps;
  return status;
}

static int make_all(Prepared *s, const char **call) {
  const gh_program *p = s->program;
  const size_t count = strlen(p->library->kinds);
  *call = "memory";
  if (!(s->objects = take(s, count * sizeof *s->objects))) return OUT_OF_MEMORY;
  if (!(s->primitives = take(s, count * sizeof *s->primitives))) return OUT_OF_MEMORY;
  GH_TRY(dnnl_engine_create(&s->engine, CPU, 0));
  GH_TRY(dnnl_stream_create(&s->stream, s->engine, IN_ORDER));
  int status = p->library->make(s->objects, s->engine, call);
  if (!status) status = own_steps(s, p->step, p->steps, &s->steps, call);
  for (Place *x = s->places; !status && x; x = x->next)
    if (!(x->memory = take(s, x->bytes))) status = OUT_OF_MEMORY;
  return status;
}

gh_code gh_prepare_onednn(gh_context *context, const gh_program *program, const gh_step **steps) {
  Prepared *s = context->prepared;
  while (s && s->program != program) s = s->next;
  if (!s) {
    const char *call = "memory";
    s = calloc(1, sizeof *s);
    int status = OUT_OF_MEMORY;
    if (s) {
      s->program = program;
      status = make_all(s, &call);
    }
    if (status) {
      gh_release_onednn(s);
      return gh_fail(context, status == OUT_OF_MEMORY ? GH_MEMORY : GH_LIBRARY, "%s: %.*s of oneDNN gives %d (%s)",
                     program->name, (int)strcspn(call, "("), call, status,
                     status == UNIMPLEMENTED ? "not on this processor" : "see dnnl_status_t");
    }
    s->next = context->prepared;
    context->prepared = s;
  }
  *steps = s->steps;
  return GH_OK;
}

/* ---- the end ------------------------------------------------------------------------------ */

static void destroy_objects(Prepared *s) {
  const char *kinds = s->program->library->kinds;
  for (size_t i = strlen(kinds); s->objects && s->primitives && i--;) {
    if (s->primitives[i]) dnnl_primitive_destroy(s->primitives[i]);
    if (!s->objects[i]) continue;
    if (kinds[i] == 'p') dnnl_primitive_desc_destroy(s->objects[i]);
    if (kinds[i] == 'd') dnnl_memory_desc_destroy(s->objects[i]);
    if (kinds[i] == 'a') dnnl_primitive_attr_destroy(s->objects[i]);
  }
}

void gh_release_onednn(void *prepared) {
  for (Prepared *s = prepared, *next; s; s = next) {
    next = s->next;
    for (Run *run = s->runs; run; run = run->next)
      for (int k = 0; k < run->count; k++)
        if (run->args[k].memory) dnnl_memory_destroy(run->args[k].memory);
    destroy_objects(s);
    if (s->stream) dnnl_stream_destroy(s->stream);
    if (s->engine) dnnl_engine_destroy(s->engine);
    for (Piece *piece = s->pieces, *after; piece; piece = after) {
      after = piece->next;
      free(piece);
    }
    free(s);
  }
}
#endif
