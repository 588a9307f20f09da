// # arena: 0 bytes
//    0 kernel over (64, 100): sum sum: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0: parallel = 1, n_p0 = 64, n_i = 100, step0 = 100 */
void kernel0(void **a) {
  const int64_t parallel = (int64_t)a[3];
  const int64_t n_p0 = (int64_t)a[4];
  const int64_t n_i = (int64_t)a[5];
  const int64_t step0 = (int64_t)a[6];
  float *b0 = a[0];
  uint8_t *b1 = a[1];
  float *b2 = a[2];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    double t0 = 0;
     {
      float s1[16] = {[0 ... 15] = 0};
      for (int64_t at = 0; at < n_i; at += 16) {
        const int met = at + 16 <= n_i ? 0 : at + 16 - n_i;
        int32_t wide2[16];
        for (int k = 0; k < 16; k++) { const int64_t i = at - met + k; wide2[k] = b1[p0 * step0 + i]; }
        #pragma omp simd
        for (int k = 0; k < 16; k++) {
          const int64_t i = at - met + k;
          const float v3 = b2[p0 * step0 + i];
          const float v4 = wide2[k] ? v3 : ((float)0x0.0p+0);
          s1[k] = k >= met ? s1[k] + v4 : s1[k];
        }
      }
      GH_HALVES(16) s1[k] = s1[k] + s1[k + h];
      t0 = t0 + s1[0];
    }
    const float r5 = (float)t0;
    b0[p0] = r5;
  }
}
