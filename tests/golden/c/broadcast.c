// # arena: 0 bytes
//    0 kernel over (30, 40): map add: b0@input:0 b1@input:1 b2@input:2 -> b3@output:0

/* steps 0: n_i = 40, parallel = 0, n_p0 = 30, step0 = 40 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[4];
  const int64_t parallel = (int64_t)a[5];
  const int64_t n_p0 = (int64_t)a[6];
  const int64_t step0 = (int64_t)a[7];
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  float *b3 = a[3];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    const float v0 = b1[p0];
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v1 = b2[p0 * step0 + i];
      const float v2 = b3[i];
      const float v3 = v1 * v2;
      const float v4 = v3 + v0;
      b0[p0 * step0 + i] = v4;
    }
  }
}
