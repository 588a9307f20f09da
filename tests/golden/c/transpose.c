// # arena: 0 bytes
//    0 kernel over (30, 20): map add: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  for (int64_t p = 0; p < 30; p++) {
    const int64_t p0 = p;
    #pragma omp simd
    for (int64_t i = 0; i < 20; i++) {
      const float v0 = b1[p0 + i * 30LL];
      const float v1 = b2[p0 * 20LL + i];
      const float v2 = v0 + v1;
      b0[p0 * 20LL + i] = v2;
    }
  }
}

