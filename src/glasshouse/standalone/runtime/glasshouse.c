/* Contexts: memory, runs, numbers and random keys. safetensors.c has the files. */
#include "gh_context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t gh_run(const void *steps, int64_t begin, int64_t end, char *arena, void **inputs, void **outputs,
               int64_t *scalars, int64_t *error, int64_t *ends_ns);

static const char *const texts[] = {
  "all is well", "an argument is missing", "a tensor has another shape", "a tensor has another dtype",
  "there is no state of that name", "there is too little memory", "a file cannot be read or written",
  "a file is no safetensors file of this program", "an index is out of range", "a step failed",
  "oneDNN lacks a step of this program"
};

const char *gh_text(gh_code code) {
  return (unsigned)code < sizeof texts / sizeof *texts ? texts[code] : "unknown code";
}

const char *gh_error(const gh_context *context) {
  return context ? context->error : "there is no context";
}

gh_code gh_fail(gh_context *context, gh_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(context->error, sizeof context->error, format, args);
  va_end(args);
  return code;
}

int64_t gh_item_bytes(gh_dtype dtype) {
  static const int64_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
  return sizes[dtype];
}

int64_t gh_spec_bytes(const gh_spec *spec) {
  int64_t bytes = gh_item_bytes(spec->dtype);
  for (int i = 0; i < spec->axes; i++) bytes *= spec->shape[i];
  return bytes;
}

/* ---- memory ------------------------------------------------------------------------------ */

enum { ALIGNMENT = 64, HEAD = (sizeof(gh_context) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT };

/* After the block: the error flag, scalars, and pointers to inputs and outputs. */
static size_t table_bytes(const gh_program *p) {
  size_t most = 0;
  for (int i = 0; i < gh_size_count(p); i++) {
    const gh_program *q = gh_size(p, i);
    const size_t bytes = (size_t)(q->fetches + q->results + q->scalars + 1) * 8;
    if (bytes > most) most = bytes;
  }
  return most;
}

size_t gh_bytes(const gh_program *program) {
  return program ? HEAD + (size_t)program->block_bytes + table_bytes(program) : 0;
}

gh_code gh_create_in(const gh_program *program, void *memory, size_t bytes, gh_context **context) {
  if (!program || !memory || !context) return GH_ARGUMENT;
  if (bytes < gh_bytes(program) || (uintptr_t)memory % ALIGNMENT) return GH_MEMORY;
  memset(memory, 0, gh_bytes(program));
  gh_context *c = memory;
  c->program = program;
  c->block = (char *)memory + HEAD;
  c->table = (void **)(c->block + program->block_bytes);
  strcpy(c->error, gh_text(GH_OK));
  *context = c;
  return GH_OK;
}

gh_code gh_create(const gh_program *program, gh_context **context) {
  if (!program || !context) return GH_ARGUMENT;
  const size_t bytes = (gh_bytes(program) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  void *memory = aligned_alloc(ALIGNMENT, bytes);
  if (!memory) return GH_MEMORY;
  const gh_code code = gh_create_in(program, memory, bytes, context);
  if (code) free(memory);
  else (*context)->is_ours = 1;
  return code;
}

void gh_free(gh_context *context) {
  if (!context) return;
  if (context->prepared) context->program->library->release(context->prepared);
  if (context->is_ours) free(context);
}

/* ---- what a program has ------------------------------------------------------------------- */

static const gh_spec *one_of(const gh_spec *specs, int64_t count, int number) {
  return number >= 0 && number < count ? specs + number : NULL;
}

int gh_input_count(const gh_program *program) { return program ? (int)program->inputs : 0; }
int gh_output_count(const gh_program *program) { return program ? (int)program->outputs : 0; }
int gh_state_count(const gh_program *program) { return program ? (int)program->states : 0; }

const gh_spec *gh_input(const gh_program *p, int number) { return p ? one_of(p->input, p->inputs, number) : NULL; }
const gh_spec *gh_output(const gh_program *p, int number) { return p ? one_of(p->output, p->outputs, number) : NULL; }
const gh_spec *gh_state_spec(const gh_program *p, int number) { return p ? one_of(p->state, p->states, number) : NULL; }

int gh_size_count(const gh_program *program) { return program ? (int)program->others + 1 : 0; }

const gh_program *gh_size(const gh_program *p, int number) {
  if (!p || number < 0 || number > p->others) return NULL;
  return number ? p->other[number - 1] : p;
}

/* ---- state by name ------------------------------------------------------------------------ */

int64_t gh_find(const gh_program *p, const char *name) {
  for (int64_t i = 0; i < p->states; i++)
    if (!strcmp(p->state[i].name, name)) return i;
  return -1;
}

gh_code gh_state(gh_context *context, const char *name, const gh_spec **spec, void **data) {
  if (!context || !name || !spec || !data) return GH_ARGUMENT;
  const int64_t i = gh_find(context->program, name);
  if (i < 0) return gh_fail(context, GH_NAME, "%s: no state %.80s", context->program->name, name);
  *spec = context->program->state + i;
  *data = context->block + context->program->state_at[i];
  return GH_OK;
}

/* Where a number of the state lies; NULL for other state. */
static double *number_of(const gh_context *context, const char *name) {
  const gh_program *p = context->program;
  const int64_t i = gh_find(p, name);
  if (i < 0 || p->state[i].dtype != GH_F64 || p->state[i].axes) return NULL;
  return (double *)(context->block + p->state_at[i]);
}

gh_code gh_set(gh_context *context, const char *name, double value) {
  if (!context || !name) return GH_ARGUMENT;
  double *number = number_of(context, name);
  if (!number) return gh_fail(context, GH_NAME, "%s: no number %.80s", context->program->name, name);
  *number = value;
  return GH_OK;
}

gh_code gh_get(const gh_context *context, const char *name, double *value) {
  if (!context || !name || !value) return GH_ARGUMENT;
  const double *number = number_of(context, name);
  if (!number) return GH_NAME;
  *value = *number;
  return GH_OK;
}

gh_code gh_copy(gh_context *to, const gh_context *from) {
  if (!to || !from) return GH_ARGUMENT;
  const gh_program *p = to->program, *q = from->program;
  for (int64_t i = 0; i < p->states; i++) {
    const int64_t j = gh_find(q, p->state[i].name);
    if (j < 0) continue;
    const int64_t bytes = gh_spec_bytes(p->state + i);
    if (p->state[i].dtype != q->state[j].dtype || bytes != gh_spec_bytes(q->state + j))
      return gh_fail(to, GH_SHAPE, "%s: %.80s has another shape in %s", p->name, p->state[i].name, q->name);
  }
  for (int64_t i = 0; i < p->states; i++) {
    const int64_t j = gh_find(q, p->state[i].name);
    if (j >= 0) memmove(to->block + p->state_at[i], from->block + q->state_at[j], (size_t)gh_spec_bytes(p->state + i));
  }
  return GH_OK;
}

/* ---- random numbers ----------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea & Flood 2014), as tensor/random.py of glasshouse makes keys of seeds. */
static uint64_t mixed(uint64_t n) {
  n += 0x9E3779B97F4A7C15u;
  n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9u;
  n = (n ^ n >> 27) * 0x94D049BB133111EBu;
  return n ^ n >> 31;
}

gh_code gh_seed(gh_context *context, uint64_t seed) {
  if (!context) return GH_ARGUMENT;
  const uint64_t state = mixed(mixed(0) ^ seed);
  for (int n = 0; n < gh_size_count(context->program); n++) {
    const gh_program *p = gh_size(context->program, n);
    for (int64_t i = 0; i < p->keys; i++) {
      uint64_t *generator = (uint64_t *)(context->block + p->key[i].generator);
      generator[0] = state >> 32;
      generator[1] = state & 0xFFFFFFFFu;
      generator[2] = 0;
    }
  }
  return GH_OK;
}

static void draw_keys(gh_context *c, const gh_program *p) {
  for (int64_t i = 0; i < p->keys; i++) {
    const gh_key *key = p->key + i;
    uint64_t *generator = (uint64_t *)(c->block + key->generator), draw = generator[2]++;
    uint32_t *to = (uint32_t *)(c->block + key->at);
    to[0] = (uint32_t)generator[0];
    to[1] = (uint32_t)generator[1];
    to[2] = (uint32_t)draw;
    to[3] = (uint32_t)(draw >> 32);
  }
}

/* ---- runs --------------------------------------------------------------------------------- */

static gh_code check(gh_context *c, const char *kind, const gh_tensor *given, int count, const gh_spec *specs,
                     int64_t wanted) {
  const char *name = c->program->name;
  if (count != wanted || (count && !given))
    return gh_fail(c, GH_ARGUMENT, "%s: expected %d %ss; got %d", name, (int)wanted, kind, count);
  for (int i = 0; i < count; i++) {
    const gh_tensor *x = given + i;
    const gh_spec *spec = specs + i;
    if (!x->data || (x->axes && !x->shape))
      return gh_fail(c, GH_ARGUMENT, "%s: %s %s has no data or shape", name, kind, spec->name);
    if (x->dtype != spec->dtype)
      return gh_fail(c, GH_DTYPE, "%s: %s %s has dtype %d; expected %d", name, kind, spec->name, x->dtype, spec->dtype);
    if (x->axes != spec->axes)
      return gh_fail(c, GH_SHAPE, "%s: %s %s has %d axes; expected %d", name, kind, spec->name, x->axes, spec->axes);
    for (int k = 0; k < x->axes; k++)
      if (x->shape[k] != spec->shape[k])
        return gh_fail(c, GH_SHAPE, "%s: %s %s has size %lld on axis %d; expected %lld", name, kind, spec->name,
                       (long long)x->shape[k], k, (long long)spec->shape[k]);
  }
  return GH_OK;
}

static int has_shape(const gh_tensor *x, const gh_spec *spec) {
  if (x->dtype != spec->dtype || x->axes != spec->axes || (x->axes && !x->shape)) return 0;
  for (int k = 0; k < x->axes; k++)
    if (x->shape[k] != spec->shape[k]) return 0;
  return 1;
}

/* The program of the size that the inputs have; NULL for none. */
static const gh_program *fitting(const gh_program *program, const gh_tensor *inputs, int count) {
  for (int n = 0; n < gh_size_count(program); n++) {
    const gh_program *p = gh_size(program, n);
    int64_t i = 0;
    if (count != p->inputs || (count && !inputs)) continue;
    while (i < count && has_shape(inputs + i, p->input + i)) i++;
    if (i == count) return p;
  }
  return NULL;
}

static size_t put(char *to, size_t at, const char *format, ...) {
  va_list args;
  if (at >= GH_MOST_SAID) return at;
  va_start(args, format);
  const int length = vsnprintf(to + at, GH_MOST_SAID - at, format, args);
  va_end(args);
  return at + (size_t)(length > 0 ? length : 0);
}

static size_t put_shape(char *to, size_t at, const int64_t *shape, int axes) {
  at = put(to, at, " [");
  for (int k = 0; shape && k < axes; k++) at = put(to, at, k ? ", %lld" : "%lld", (long long)shape[k]);
  return put(to, at, "]");
}

/* Says which inputs there are programs for. */
static gh_code refuse(gh_context *c, const gh_tensor *inputs, int count) {
  const gh_program *p = c->program;
  const gh_code code = check(c, "input", inputs, count, p->input, p->inputs);
  if (code != GH_SHAPE || !p->others) return code;
  size_t at = put(c->error, 0, "%s: no size of it has inputs", p->name);
  for (int i = 0; i < count; i++) at = put_shape(c->error, at, inputs[i].shape, inputs[i].axes);
  at = put(c->error, at, "; there are");
  for (int n = 0; n < gh_size_count(p); n++) {
    const gh_program *q = gh_size(p, n);
    if (n) at = put(c->error, at, " or");
    for (int64_t i = 0; i < q->inputs; i++) at = put_shape(c->error, at, q->input[i].shape, q->input[i].axes);
  }
  return code;
}

static char *place_of(const gh_context *c, const gh_tensor *inputs, gh_place place) {
  return place.argument < 0 ? c->block + place.at : (char *)inputs[place.argument].data + place.at;
}

/* A value of any strides to a row-major one. */
static void move_elements(const gh_move *m, const char *from, char *to) {
  int64_t count = 1, dense = 1, is_dense = 1;
  for (int k = 0; k < m->axes; k++) count *= m->shape[k];
  for (int k = m->axes - 1; k >= 0; k--) {
    is_dense = is_dense && (m->shape[k] == 1 || m->strides[k] == dense);
    dense *= m->shape[k];
  }
  if (is_dense) {
    memmove(to, from, (size_t)(count * m->size));
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, at = 0;
    for (int k = m->axes - 1; k >= 0; k--) {
      at += rest % m->shape[k] * m->strides[k];
      rest /= m->shape[k];
    }
    memcpy(to + i * m->size, from + at * m->size, (size_t)m->size);
  }
}

gh_code gh_program_run(gh_context *context, const gh_tensor *inputs, int input_count, const gh_tensor *outputs,
                       int output_count) {
  if (!context) return GH_ARGUMENT;
  gh_context *c = context;
  const gh_program *p = fitting(c->program, inputs, input_count);
  if (!p) return refuse(c, inputs, input_count);
  gh_code code = check(c, "input", inputs, input_count, p->input, p->inputs);
  if (!code) code = check(c, "output", outputs, output_count, p->output, p->outputs);
  const gh_step *steps = p->step;
  if (!code && p->library) code = p->library->prepare(c, p, &steps);
  if (code) return code;
  int64_t *failed = (int64_t *)c->table, *scalars = failed + 1;
  void **in = (void **)(scalars + p->scalars), **out = in + p->fetches;
  draw_keys(c, p);
  p->numbers(c->block, scalars);
  for (int64_t i = 0; i < p->fetches; i++) in[i] = place_of(c, inputs, p->fetch[i]);
  for (int64_t i = 0; i < p->results; i++) out[i] = c->block + p->result[i];
  *failed = 0;
  const int64_t end = gh_run(steps, 0, p->steps, c->block + p->arena_at, in, out, scalars, failed, NULL);
  if (*failed) return gh_fail(c, GH_INDEX, "%s: an index is out of range", p->name);
  if (end != p->steps) return gh_fail(c, GH_STEP, "%s: step %lld failed", p->name, (long long)(-1 - end));
  for (int64_t i = 0; i < p->outputs; i++)
    move_elements(p->gives + i, place_of(c, inputs, p->gives[i].from), outputs[i].data);
  for (int64_t i = 0; i < p->moves; i++)
    move_elements(p->move + i, place_of(c, inputs, p->move[i].from), c->block + p->move[i].to);
  p->advance(c->block);
  return GH_OK;
}
