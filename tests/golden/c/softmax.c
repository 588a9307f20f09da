// # arena: 0 bytes
//    0 kernel over (64, 100): max max, sum sum, map div: b0@input:0 -> b3@output:0

/* steps 0: parallel = 1, n_p0 = 64, n_i = 100, step0 = 100 */
void kernel0(void **a) {
  const int64_t parallel = (int64_t)a[2];
  const int64_t n_p0 = (int64_t)a[3];
  const int64_t n_i = (int64_t)a[4];
  const int64_t step0 = (int64_t)a[5];
  float *b0 = a[0];
  float *b1 = a[1];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    float kept0[n_i];
    float t1 = -INFINITY;
     {
      float s2[16] = {[0 ... 15] = -INFINITY};
      for (int64_t at = 0; at < n_i; at += 16) {
        const int met = at + 16 <= n_i ? 0 : at + 16 - n_i;
        #pragma omp simd
        for (int k = 0; k < 16; k++) {
          const int64_t i = at - met + k;
          const float v3 = b1[p0 * step0 + i];
          s2[k] = gh_maximum_f32(s2[k], v3);
        }
      }
      GH_HALVES(16) s2[k] = gh_maximum_f32(s2[k], s2[k + h]);
      t1 = gh_maximum_f32(t1, s2[0]);
    }
    const float r4 = (float)t1;
    double t5 = 0;
     {
      float s6[16] = {[0 ... 15] = 0};
      for (int64_t at = 0; at < n_i; at += 16) {
        const int met = at + 16 <= n_i ? 0 : at + 16 - n_i;
        #pragma omp simd
        for (int k = 0; k < 16; k++) {
          const int64_t i = at - met + k;
          const float v3 = b1[p0 * step0 + i];
          const float v7 = v3 - r4;
          const float v8 = gh_exp_f32(v7);
          kept0[i] = v8;
          s6[k] = k >= met ? s6[k] + v8 : s6[k];
        }
      }
      GH_HALVES(16) s6[k] = s6[k] + s6[k + h];
      t5 = t5 + s6[0];
    }
    const float r9 = (float)t5;
     {
      #pragma omp simd
      for (int64_t i = 0; i < n_i; i++) {
        const float v10 = kept0[i] / r9;
        b0[p0 * step0 + i] = v10;
      }
    }
  }
}
