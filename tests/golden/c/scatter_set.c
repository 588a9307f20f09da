// # arena: 0 bytes
//    0 kernel over (4, 5): map scatter_set: b0@input:0 -> b3@output:0
//    1 template scatter_set: b1@input:1 b2@input:2 b3@output:0 -> b3@output:0

/* steps 0: n_i = 20 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[2];
  float *b0 = a[0];
  float *b1 = a[1];
  if (b1 == b0) return;  // donated memory
   {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v0 = b1[i];
      b0[i] = v0;
    }
  }
}

/* steps 1: pre = 4, rows = 5, post = 1, count = 2, chunks = 1, parallel = 0 */
void kernel1(void **a) {
  const int64_t pre = (int64_t)a[4];
  const int64_t rows = (int64_t)a[5];
  const int64_t post = (int64_t)a[6];
  const int64_t count = (int64_t)a[7];
  const int64_t chunks = (int64_t)a[8];
  const int64_t parallel = (int64_t)a[9];
  int64_t *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  int64_t *b3 = a[3];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t c = 0; c < chunks; c++) {
    const int64_t lo = c * 256;
    const int64_t hi = lo + 256 < post ? lo + 256 : post;
    for (int64_t p = 0; p < pre; p++)
      for (int64_t j = 0; j < count; j++) {
        const int64_t row = gh_index((int64_t)b0[j], rows, b3);
        #pragma omp simd
        for (int64_t i = lo; i < hi; i++)
          b2[(p * rows + row) * post + i] = b1[(p * count + j) * post + i];
      }
  }
}
