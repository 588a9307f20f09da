// # arena: 0 bytes
//    0 kernel over (1000,): map add, map sub: b0@input:0 b1@input:1 b2@input:2 -> b3@output:0 b4@output:1

/* steps 0: n_i = 1000 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[7];
  float *b0 = a[0];
  float *b1 = a[1];
  const float b2 = (float)*(double *)a[2];
  const float b3 = (float)*(double *)a[3];
  float *b4 = a[4];
  float *b5 = a[5];
  float *b6 = a[6];
   {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v0 = b4[i];
      const float v1 = v0 * b2;
      const float v2 = b5[i];
      const float v3 = v1 + v2;
      const float v4 = b6[i];
      const float v5 = v3 * b3;
      const float v6 = v4 - v5;
      b0[i] = v3;
      b1[i] = v6;
    }
  }
}
