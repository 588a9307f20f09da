// # arena: 0 bytes
//    0 kernel over (100000,): sum sum: b0@input:0 -> b1@output:0

/* steps 0: n_i = 100000, units = 25, blocks = 25, parallel = 1 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[2] & -16;
  const int64_t units = (int64_t)a[3];
  const int64_t blocks = (int64_t)a[4];
  const int64_t parallel = (int64_t)a[5];
  float *b0 = a[0];
  float *b1 = a[1];
   {
    double part0[256];
    #pragma omp parallel for schedule(static) if(parallel)
    for (int64_t block = 0; block < blocks; block++) {
      double t1 = 0;
      const int64_t first = block * units / blocks;
      const int64_t last = (block + 1) * units / blocks;
      for (int64_t u = first; u < last; u++) {
        const int64_t lo = u * 4096LL;
        const int64_t hi = lo + 4096 < n_i ? lo + 4096 : n_i;
         {
          float s2[16] = {[0 ... 15] = 0};
          for (int64_t at = lo; at < hi; at += 16) {
            #pragma omp simd
            for (int k = 0; k < 16; k++) {
              const int64_t i = at + k;
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
    for (int64_t block = 0; block < blocks; block++) {
      t1 = t1 + part0[block];
    }
    const float r4 = (float)t1;
    b0[0] = r4;
  }
}
