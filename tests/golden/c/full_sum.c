// # arena: 0 bytes
//    0 kernel over (100000,): sum sum: b0@input:0 -> b1@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  for (int64_t p = 0; p < 1; p++) {
    double part0[25];
    #pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < 25; block++) {
      double t1 = 0;
      for (int64_t u = block * 25 / 25; u < (block + 1) * 25 / 25; u++) {
        const int64_t lo = u * 4096LL;
        const int64_t hi = lo + 4096 < 100000 ? lo + 4096 : 100000;
         {
          float s2[16] = {[0 ... 15] = 0};
          for (int64_t at = lo; at < hi; at += 16) {
            const int met = at + 16 <= hi ? 0 : at + 16 - hi;
            #pragma omp simd
            for (int k = 0; k < 16; k++) {
              const int64_t i = at - met + k;
              const float v3 = b1[i];
              s2[k] = s2[k] + v3;
            }
          }
          GH_HALVES(16) s2[k] = s2[k] + s2[k + h];
          t1 = t1 + s2[0];
        }
      }
      part0[block] = t1;
    }
    double t1 = 0;
    for (int64_t block = 0; block < 25; block++) {
      t1 = t1 + part0[block];
    }
    const float r4 = (float)t1;
    b0[0] = r4;
  }
}

