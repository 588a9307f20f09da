/* What page.js calls: the program `predict` on one picture of 8 x 8, with its memory in WebAssembly's. */
#include <stdlib.h>

#include "predict.h"

#define PAGE(name) __attribute__((export_name(#name)))

enum { PIXELS = 64, DIGITS = 10 };
static const int64_t picture[] = {1, 1, 8, 8}, result[] = {1, DIGITS};
static float pixels[PIXELS], scores[DIGITS];
static gh_context *context;

PAGE(pixels) float *page_pixels(void) { return pixels; }
PAGE(scores) float *page_scores(void) { return scores; }
PAGE(reserve) void *page_reserve(size_t bytes) { return malloc(bytes); }
PAGE(error) const char *page_error(void) { return gh_error(context); }

/* Takes the contents of predict.safetensors, in memory of `reserve`. */
PAGE(load) int page_load(void *weights, size_t bytes) {
  gh_code code = context ? GH_OK : gh_create(&predict, &context);
  if (!code) code = gh_load_memory(context, weights, bytes);
  free(weights);
  return code;
}

/* Reads the pixels: the scores of the digits. */
PAGE(read) int page_read(void) {
  const gh_tensor in = {GH_F32, 4, picture, pixels}, out = {GH_F32, 2, result, scores};
  return gh_program_run(context, &in, 1, &out, 1);
}
