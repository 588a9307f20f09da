// # arena: 0 bytes
//    0 kernel over (3000, 20): sum sum: b0@input:0 -> b1@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  for (int64_t p = 0; p < 1; p++) {
    double *part0 = malloc(sizeof(double) * 480);
    #pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < 24; block++) {
      double *t1 = part0 + block * 20;
      float *s2 = malloc(sizeof(float) * 20);
      for (int64_t i = 0; i < 20; i++) t1[i] = 0;
      const int64_t last = (block + 1) * 3000 / 24;
      for (int64_t lo = block * 3000 / 24; lo < last; lo += 128) {
        const int64_t hi = lo + 128 < last ? lo + 128 : last;
        for (int64_t i = 0; i < 20; i++) s2[i] = 0;
        for (int64_t u = lo; u < hi; u++) {
          const int64_t q0 = u;
          #pragma omp simd
          for (int64_t i = 0; i < 20; i++) {
            const float v3 = b1[q0 * 20LL + i];
            s2[i] = s2[i] + v3;
          }
        }
        #pragma omp simd
        for (int64_t i = 0; i < 20; i++) {
          t1[i] = t1[i] + s2[i];
        }
      }
      free(s2);
    }
    #pragma omp simd
    for (int64_t i = 0; i < 20; i++) {
      double t1 = 0;
      for (int64_t block = 0; block < 24; block++) {
        t1 = t1 + part0[block * 20 + i];
      }
      const float r4 = (float)t1;
      b0[i] = r4;
    }
    free(part0);
  }
}

