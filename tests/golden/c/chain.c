// # arena: 0 bytes
//    0 kernel over (70, 100): map add: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0: n_i = 7000, parallel = 1 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[3];
  const int64_t parallel = (int64_t)a[4];
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t lo = 0; lo < n_i; lo += 4096) {
    const int64_t hi = lo + 4096 < n_i ? lo + 4096 : n_i;
    #pragma omp simd
    for (int64_t i = lo; i < hi; i++) {
      const float v0 = b1[i];
      const float v1 = v0 * ((float)0x1.0000000000000p-1);
      const float v2 = gh_exp_f32(v1);
      const float v3 = b2[i];
      const float v4 = gh_tanh_f32(v3);
      const float v5 = v2 + v4;
      b0[i] = v5;
    }
  }
}
