/* What glasshouse.c and safetensors.c share. */
#ifndef GH_CONTEXT_H
#define GH_CONTEXT_H

#include "gh_program.h"

enum { GH_MOST_SAID = 256 };

struct gh_context {
  const gh_program *program;
  char *block;
  void **table;
  int is_ours;
  void *prepared; /* by the program's library */
  char error[GH_MOST_SAID];
};

gh_code gh_fail(gh_context *context, gh_code code, const char *format, ...);
int64_t gh_item_bytes(gh_dtype dtype);
int64_t gh_spec_bytes(const gh_spec *spec);
int64_t gh_find(const gh_program *program, const char *name);
#endif
