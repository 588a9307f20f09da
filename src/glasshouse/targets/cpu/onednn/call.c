/* Runs a oneDNN primitive on the addresses of a step: see native/runner.c. */
#include <stdint.h>

typedef struct { int arg; void *memory; } ExecArg; /* dnnl_exec_arg_t */

typedef struct {
  void *primitive, *stream;
  ExecArg *args;
  int (*set_handle)(void *memory, void *address);
  int (*execute)(const void *primitive, void *stream, int count, const ExecArg *args);
} PrimitiveRun;

int gh_run_primitive(const PrimitiveRun *x, void **a, int32_t count) {
  for (int32_t k = 0; k < count; k++) x->set_handle(x->args[k].memory, a[k]);
  return x->execute(x->primitive, x->stream, count, x->args);
}
