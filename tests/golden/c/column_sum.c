// # arena: 0 bytes
//    0 kernel over (3000, 20): sum sum: b0@input:0 -> b1@output:0

/* steps 0: n_i = 20, rows = 3000, blocks = 24, parallel = 1, step0 = 20 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[2];
  const int64_t rows = (int64_t)a[3];
  const int64_t blocks = (int64_t)a[4];
  const int64_t parallel = (int64_t)a[5];
  const int64_t step0 = (int64_t)a[6];
  float *b0 = a[0];
  float *b1 = a[1];
   {
    double *part0 = malloc(sizeof(double) * blocks * n_i);
    #pragma omp parallel for schedule(static) if(parallel)
    for (int64_t block = 0; block < blocks; block++) {
      double *t1 = part0 + block * n_i;
      float *s2 = malloc(sizeof(float) * n_i);
      for (int64_t i = 0; i < n_i; i++) t1[i] = 0;
      const int64_t last = (block + 1) * rows / blocks;
      for (int64_t lo = block * rows / blocks; lo < last; lo += 128) {
        const int64_t hi = lo + 128 < last ? lo + 128 : last;
        for (int64_t i = 0; i < n_i; i++) s2[i] = 0;
        for (int64_t q0 = lo; q0 < hi; q0++) {
          #pragma omp simd
          for (int64_t i = 0; i < n_i; i++) {
            const float v3 = b1[q0 * step0 + i];
            s2[i] = s2[i] + v3;
          }
        }
        #pragma omp simd
        for (int64_t i = 0; i < n_i; i++) {
          t1[i] = t1[i] + s2[i];
        }
      }
      free(s2);
    }
    for (int64_t block = 1; block < blocks; block++) {
      #pragma omp simd
      for (int64_t i = 0; i < n_i; i++) {
        part0[i] = part0[i] + part0[block * n_i + i];
      }
    }
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const double t1 = part0[i];
      const float r4 = (float)t1;
      b0[i] = r4;
    }
    free(part0);
  }
}
