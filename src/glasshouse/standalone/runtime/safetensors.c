/* safetensors files: eight bytes with the length of a JSON header, the header, the data.
   Source: https://github.com/huggingface/safetensors, "Format". Numbers lie with their lowest byte
   first, as on the processors that this runs on. */
#include "gh_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const codes[] = {"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32",
                                    "U64", "F16", "BF16", "F32", "F64"};
enum { MOST_HEADER = 1 << 26, MOST_NAME = 512, MOST_NESTED = 32 };

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct { const char *at, *end; } text;

typedef struct {
  char name[MOST_NAME], dtype[8];
  int axes;
  int64_t shape[GH_MOST_AXES], begin, end;
} entry;

static void skip_space(text *t) {
  while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r')) t->at++;
}

/* Whether the next character is this one, which is taken then. */
static int take(text *t, char c) {
  skip_space(t);
  if (t->at >= t->end || *t->at != c) return 0;
  t->at++;
  return 1;
}

static int hex_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A string; of characters beyond ASCII in \u form only those of two bytes are kept. */
static int take_string(text *t, char *to, size_t room) {
  size_t n = 0;
  if (!take(t, '"')) return 0;
  for (; t->at < t->end && *t->at != '"'; t->at++) {
    unsigned c = (unsigned char)*t->at;
    if (c == '\\') {
      if (++t->at >= t->end) return 0;
      static const char from[] = "\"\\/bfnrt", by[] = "\"\\/\b\f\n\r\t";
      const char *found = memchr(from, *t->at, sizeof from - 1);
      if (found) c = (unsigned char)by[found - from];
      else if (*t->at == 'u' && t->end - t->at > 4) {
        c = 0;
        for (int i = 0; i < 4; i++) {
          const int digit = hex_of(*++t->at);
          if (digit < 0) return 0;
          c = c * 16 + (unsigned)digit;
        }
        if (c > 0x7ff) return 0;
        if (c > 0x7f) {
          if (to && n + 1 < room) to[n++] = (char)(0xc0 | c >> 6);
          c = 0x80 | (c & 0x3f);
        }
      } else return 0;
    }
    if (to && n + 1 >= room) return 0;
    if (to) to[n++] = (char)c;
  }
  if (to) to[n] = 0;
  return take(t, '"');
}

static int take_number(text *t, int64_t *to) {
  skip_space(t);
  int64_t n = 0;
  const char *begin = t->at;
  for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
    if (n > (INT64_MAX - 9) / 10) return 0;
    n = n * 10 + (*t->at - '0');
  }
  *to = n;
  return t->at > begin;
}

static int skip_value(text *t, int depth);

static int skip_items(text *t, char end, int named, int depth) {
  if (take(t, end)) return 1;
  do {
    if (named && !(take_string(t, NULL, 0) && take(t, ':'))) return 0;
    if (!skip_value(t, depth + 1)) return 0;
  } while (take(t, ','));
  return take(t, end);
}

static int skip_value(text *t, int depth) {
  if (depth > MOST_NESTED) return 0;
  if (take(t, '{')) return skip_items(t, '}', 1, depth);
  if (take(t, '[')) return skip_items(t, ']', 0, depth);
  skip_space(t);
  if (t->at < t->end && *t->at == '"') return take_string(t, NULL, 0);
  const char *begin = t->at;
  while (t->at < t->end && !memchr(",]} \t\r\n", *t->at, 7)) t->at++;
  return t->at > begin;
}

static int take_sizes(text *t, int64_t *to, int most, int *count) {
  *count = 0;
  if (!take(t, '[')) return 0;
  if (take(t, ']')) return 1;
  do {
    if (*count >= most || !take_number(t, to + *count)) return 0;
    ++*count;
  } while (take(t, ','));
  return take(t, ']');
}

/* One tensor of the header. */
static int take_entry(text *t, entry *e) {
  int seen = 0, count;
  int64_t offsets[2];
  char key[32];
  e->axes = 0;
  if (!take(t, '{')) return 0;
  do {
    if (!take_string(t, key, sizeof key) || !take(t, ':')) return 0;
    if (!strcmp(key, "dtype")) seen |= take_string(t, e->dtype, sizeof e->dtype) ? 1 : 8;
    else if (!strcmp(key, "shape")) seen |= take_sizes(t, e->shape, GH_MOST_AXES, &e->axes) ? 2 : 8;
    else if (!strcmp(key, "data_offsets")) {
      seen |= take_sizes(t, offsets, 2, &count) && count == 2 ? 4 : 8;
      e->begin = offsets[0];
      e->end = offsets[1];
    } else if (!skip_value(t, 0)) return 0;
    if (seen & 8) return 0;
  } while (take(t, ','));
  return take(t, '}') && seen == 7;
}

static int is_like(const entry *e, const gh_spec *spec) {
  if (strcmp(e->dtype, codes[spec->dtype]) || e->axes != spec->axes) return 0;
  for (int i = 0; i < e->axes; i++)
    if (e->shape[i] != spec->shape[i]) return 0;
  return e->end - e->begin == gh_spec_bytes(spec);
}

/* Finds the state in a header: `places` has where in the data each begins. Names that the program does
   not have are passed over. */
static gh_code find_state(gh_context *c, text header, int64_t data_bytes, int64_t *places, const char *path) {
  const gh_program *p = c->program;
  entry *e = malloc(sizeof *e);
  if (!e) return gh_fail(c, GH_MEMORY, "%s: no memory", p->name);
  gh_code code = GH_OK;
  int good = take(&header, '{');
  for (int64_t i = 0; i < p->states; i++) places[i] = -1;
  if (good && !take(&header, '}')) {
    do {
      good = take_string(&header, e->name, sizeof e->name) && take(&header, ':');
      if (good && !strcmp(e->name, "__metadata__")) good = skip_value(&header, 0);
      else if (good) {
        good = take_entry(&header, e) && e->begin >= 0 && e->begin <= e->end && e->end <= data_bytes;
        const int64_t i = good ? gh_find(p, e->name) : -1;
        if (i >= 0 && !is_like(e, p->state + i))
          code = gh_fail(c, GH_SHAPE, "%s: %.80s of %.100s has another shape or dtype", p->name, e->name, path);
        else if (i >= 0) places[i] = e->begin;
      }
    } while (good && !code && take(&header, ','));
    good = good && (code || take(&header, '}'));
  }
  free(e);
  if (!good) return gh_fail(c, GH_FORMAT, "%s: %.150s has a bad header", p->name, path);
  for (int64_t i = 0; !code && i < p->states; i++)
    if (places[i] < 0)
      code = gh_fail(c, GH_FORMAT, "%s: %.100s lacks %.80s", p->name, path, p->state[i].name);
  return code;
}

static gh_code read_all(gh_context *c, FILE *file, const char *path, char **data, int64_t *bytes) {
  *data = NULL;
  if (fseek(file, 0, SEEK_END)) return gh_fail(c, GH_FILE, "%s: cannot read %.150s", c->program->name, path);
  *bytes = ftell(file);
  rewind(file);
  if (*bytes < 8) return gh_fail(c, GH_FORMAT, "%s: %.150s is too short", c->program->name, path);
  *data = malloc((size_t)*bytes);
  if (!*data) return gh_fail(c, GH_MEMORY, "%s: no memory for %.150s", c->program->name, path);
  if (fread(*data, 1, (size_t)*bytes, file) != (size_t)*bytes)
    return gh_fail(c, GH_FILE, "%s: cannot read %.150s", c->program->name, path);
  return GH_OK;
}

/* Takes the state from the contents of a file, whose name is for texts. */
static gh_code take_state(gh_context *context, const char *data, int64_t bytes, const char *path) {
  const gh_program *p = context->program;
  uint64_t length = 0;
  if (bytes < 8) return gh_fail(context, GH_FORMAT, "%s: %.150s is too short", p->name, path);
  memcpy(&length, data, 8);
  if (length > MOST_HEADER || (int64_t)length > bytes - 8)
    return gh_fail(context, GH_FORMAT, "%s: %.150s has a bad header", p->name, path);
  int64_t *places = malloc(((size_t)p->states + 1) * sizeof *places);
  if (!places) return gh_fail(context, GH_MEMORY, "%s: no memory", p->name);
  const text header = {data + 8, data + 8 + length};
  const gh_code code = find_state(context, header, bytes - 8 - (int64_t)length, places, path);
  for (int64_t i = 0; !code && i < p->states; i++)
    memcpy(context->block + p->state_at[i], header.end + places[i], (size_t)gh_spec_bytes(p->state + i));
  free(places);
  return code;
}

gh_code gh_load(gh_context *context, const char *path) {
  if (!context || !path) return GH_ARGUMENT;
  FILE *file = fopen(path, "rb");
  if (!file) return gh_fail(context, GH_FILE, "%s: cannot open %.150s", context->program->name, path);
  char *data;
  int64_t bytes = 0;
  gh_code code = read_all(context, file, path, &data, &bytes);
  fclose(file);
  if (!code) code = take_state(context, data, bytes, path);
  free(data);
  return code;
}

gh_code gh_load_memory(gh_context *context, const void *data, size_t bytes) {
  if (!context || !data) return GH_ARGUMENT;
  return take_state(context, data, (int64_t)bytes, "the memory");
}

/* ---- writing ------------------------------------------------------------------------------ */

static void put_string(FILE *file, const char *s) {
  fputc('"', file);
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') fprintf(file, "\\%c", *s);
    else if ((unsigned char)*s < 0x20) fprintf(file, "\\u%04x", *s);
    else fputc(*s, file);
  }
  fputc('"', file);
}

static int write_state(const gh_context *c, FILE *file) {
  const gh_program *p = c->program;
  uint64_t length = 0;
  int64_t at = 0;
  fwrite(&length, 8, 1, file); /* filled in below */
  fputc('{', file);
  for (int64_t i = 0; i < p->states; i++) {
    const gh_spec *spec = p->state + i;
    if (i) fputc(',', file);
    put_string(file, spec->name);
    fprintf(file, ":{\"dtype\":\"%s\",\"shape\":[", codes[spec->dtype]);
    for (int k = 0; k < spec->axes; k++) fprintf(file, k ? ",%lld" : "%lld", (long long)spec->shape[k]);
    fprintf(file, "],\"data_offsets\":[%lld,", (long long)at);
    at += gh_spec_bytes(spec);
    fprintf(file, "%lld]}", (long long)at);
  }
  fputc('}', file);
  long end = ftell(file);
  for (; end > 0 && end % 8; end++) fputc(' ', file);
  for (int64_t i = 0; i < p->states; i++)
    fwrite(c->block + p->state_at[i], 1, (size_t)gh_spec_bytes(p->state + i), file);
  length = (uint64_t)end - 8;
  if (end < 0 || fseek(file, 0, SEEK_SET)) return 0;
  fwrite(&length, 8, 1, file);
  return !ferror(file);
}

gh_code gh_save(gh_context *context, const char *path) {
  if (!context || !path) return GH_ARGUMENT;
  const size_t length = strlen(path);
  char *part = malloc(length + 6);
  if (!part) return gh_fail(context, GH_MEMORY, "%s: no memory", context->program->name);
  memcpy(part, path, length);
  memcpy(part + length, ".part", 6);
  FILE *file = fopen(part, "wb");
  int good = file && write_state(context, file);
  if (file) good = fclose(file) == 0 && good;
  good = good && rename(part, path) == 0;
  if (!good && file) remove(part);
  free(part);
  if (!good) return gh_fail(context, GH_FILE, "%s: cannot write %.150s", context->program->name, path);
  return GH_OK;
}
