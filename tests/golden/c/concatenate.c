// # arena: 0 bytes
//    0 kernel over (4, 5): map concatenate: b1@input:1 -> b2@output:0
//    1 kernel over (4, 7): map concatenate: b0@input:0 -> b2@output:0

/* steps 0: n_i = 5, parallel = 0, n_p0 = 4, step0 = 5, step1 = 12 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[2];
  const int64_t parallel = (int64_t)a[3];
  const int64_t n_p0 = (int64_t)a[4];
  const int64_t step0 = (int64_t)a[5];
  const int64_t step1 = (int64_t)a[6];
  float *b0 = a[0];
  float *b1 = a[1];
  if (b1 == b0) return;  // donated memory
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v0 = b1[p0 * step0 + i];
      b0[p0 * step1 + i] = v0;
    }
  }
}

/* steps 1: n_i = 7, parallel = 0, n_p0 = 4, step0 = 7, step1 = 12 */
void kernel1(void **a) {
  const int64_t n_i = (int64_t)a[2];
  const int64_t parallel = (int64_t)a[3];
  const int64_t n_p0 = (int64_t)a[4];
  const int64_t step0 = (int64_t)a[5];
  const int64_t step1 = (int64_t)a[6];
  float *b0 = a[0];
  float *b1 = a[1];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v0 = b1[p0 * step0 + i];
      const float v1 = v0 * ((float)0x1.0000000000000p+1);
      b0[p0 * step1 + i] = v1;
    }
  }
}
