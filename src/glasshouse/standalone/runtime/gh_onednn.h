/* oneDNN as programs call it: the functions of its C API (version 3), objects as void *, enumerations
   as int; and the tables of a program's primitives. */
#ifndef GH_ONEDNN_H
#define GH_ONEDNN_H

#include "gh_program.h"

/* An argument of a primitive: its number, that of its layout, and the bytes that the plan has for it. */
typedef struct { int arg, layout; int64_t bytes; } gh_onednn_arg;
typedef struct { int primitive, count; const gh_onednn_arg *args; } gh_onednn_call;

int gh_run_onednn(const void *run, void **args, int32_t count);
gh_code gh_prepare_onednn(gh_context *context, const gh_program *program, const gh_step **steps);
void gh_release_onednn(void *prepared);

/* In a function that makes objects: returns what a call returns, unless that is 0. */
#define GH_TRY(what)             \
  do {                           \
    *call = #what;               \
    const int status = (what);   \
    if (status) return status;   \
  } while (0)

int gh_onednn_query(void **layout, const void *primitive, int what);
int gh_onednn_attributes(void **attributes);
int dnnl_memory_desc_create_with_tag(void **, int ndim, const int64_t *shape, int dtype, int tag);
int dnnl_memory_desc_create_with_strides(void **, int ndim, const int64_t *shape, int dtype, const int64_t *strides);
int dnnl_reorder_primitive_desc_create(void **, const void *from, void *from_engine, const void *to, void *to_engine,
                                       const void *attributes);
int dnnl_matmul_primitive_desc_create(void **, void *engine, const void *a, const void *b, const void *bias,
                                      const void *result, const void *attributes);
int dnnl_convolution_forward_primitive_desc_create(void **, void *engine, int kind, int algorithm, const void *x,
                                                   const void *w, const void *bias, const void *y,
                                                   const int64_t *strides, const int64_t *dilates, const int64_t *low,
                                                   const int64_t *high, const void *attributes);
int dnnl_convolution_backward_data_primitive_desc_create(void **, void *engine, int algorithm, const void *x,
                                                         const void *w, const void *y, const int64_t *strides,
                                                         const int64_t *dilates, const int64_t *low,
                                                         const int64_t *high, const void *hint,
                                                         const void *attributes);
int dnnl_convolution_backward_weights_primitive_desc_create(void **, void *engine, int algorithm, const void *x,
                                                            const void *w, const void *bias, const void *y,
                                                            const int64_t *strides, const int64_t *dilates,
                                                            const int64_t *low, const int64_t *high, const void *hint,
                                                            const void *attributes);
#endif
