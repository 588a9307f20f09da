/* Vectors as wide as the processor's registers, perhaps of fewer elements than lanes. */
#ifdef __AVX512F__
enum { GH_LANES = 16 };
#elif defined(__AVX__)
enum { GH_LANES = 8 };
#else
enum { GH_LANES = 4 };
#endif
#define GH_UNROLL _Pragma("GCC unroll 36")

typedef float gh_vector __attribute__((vector_size(4 * GH_LANES), aligned(4), may_alias));
typedef uint32_t gh_bits __attribute__((vector_size(4 * GH_LANES)));
typedef uint16_t gh_halves __attribute__((vector_size(2 * GH_LANES), aligned(2), may_alias));

GH_FN gh_vector gh_get(const float *from, const int count) {
  if (count == GH_LANES) return *(const gh_vector *)from;
  gh_vector v = {0};
  for (int i = 0; i < count; i++) v[i] = from[i];
  return v;
}

GH_FN void gh_put(float *to, gh_vector v, const int count) {
  if (count == GH_LANES) *(gh_vector *)to = v;
  else for (int i = 0; i < count; i++) to[i] = v[i];
}

/* Elements of data from the `i`-th on, in float32 or bfloat16. */
GH_FN gh_vector gh_load(const void *from, int64_t i, const int count, const int brief) {
  if (!brief) return gh_get((const float *)from + i, count);
  const uint16_t *at = (const uint16_t *)from + i;
  gh_halves h = {0};
  if (count == GH_LANES) h = *(const gh_halves *)at;
  else for (int j = 0; j < count; j++) h[j] = at[j];
  return (gh_vector)(__builtin_convertvector(h, gh_bits) << 16);
}

GH_FN void gh_store(void *to, int64_t i, gh_vector v, const int count, const int brief) {
  if (!brief) { gh_put((float *)to + i, v, count); return; }
  const gh_bits u = (gh_bits)v, nan = (gh_bits)(v != v), nearest = u + 0x7fff + (u >> 16 & 1);
  const gh_halves h = __builtin_convertvector(((nan & (u | 0x00400000)) | (~nan & nearest)) >> 16, gh_halves);
  uint16_t *at = (uint16_t *)to + i;
  if (count == GH_LANES) *(gh_halves *)at = h;
  else for (int j = 0; j < count; j++) at[j] = h[j];
}

GH_FN float gh_load_one(const void *from, int64_t i, const int brief) {
  return brief ? gh_bf16_to_f32(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

GH_FN void gh_store_one(void *to, int64_t i, float x, const int brief) {
  if (brief) ((uint16_t *)to)[i] = gh_f32_to_bf16(x);
  else ((float *)to)[i] = x;
}
