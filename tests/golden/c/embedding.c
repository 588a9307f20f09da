// # arena: 0 bytes
//    0 kernel over (5, 16): map gather: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0: n_i = 16, parallel = 0, n_p0 = 5, rows2 = 10, step0 = 16 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[4] & -16;
  const int64_t parallel = (int64_t)a[5];
  const int64_t n_p0 = (int64_t)a[6];
  const int64_t rows2 = (int64_t)a[7];
  const int64_t step0 = (int64_t)a[8];
  float *b0 = a[0];
  int64_t *b1 = a[1];
  float *b2 = a[2];
  int64_t *b3 = a[3];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    const int64_t v0 = b1[p0];
    const uint8_t v1 = v0 < ((int64_t)0LL);
    const int64_t v2 = (int64_t)(v0 - ((int64_t)10LL));
    const int64_t v3 = v1 ? v2 : v0;
    const int64_t row4 = gh_index((int64_t)v3, rows2, b3);
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v5 = b2[i + step0 * row4];
      b0[p0 * step0 + i] = v5;
    }
  }
}
