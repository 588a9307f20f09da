// # arena: 0 bytes
//    0 kernel over (300, 200): sum sum: b0@input:0 -> b1@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  #pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < 300; p++) {
    const int64_t p0 = p;
    double t0 = 0;
     {
      float s1[16] = {[0 ... 15] = 0};
      for (int64_t at = 0; at < 200; at += 16) {
        const int met = at + 16 <= 200 ? 0 : at + 16 - 200;
        #pragma omp simd
        for (int k = 0; k < 16; k++) {
          const int64_t i = at - met + k;
          const float v2 = b1[p0 * 200LL + i];
          s1[k] = k >= met ? s1[k] + v2 : s1[k];
        }
      }
      GH_HALVES(16) s1[k] = s1[k] + s1[k + h];
      t0 = t0 + s1[0];
    }
    const float r3 = (float)t0;
    b0[p0] = r3;
  }
}

