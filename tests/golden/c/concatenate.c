// # arena: 0 bytes
//    0 kernel over (4, 5): map concatenate: b1@input:1 -> b2@output:0
//    1 kernel over (4, 7): map concatenate: b0@input:0 -> b2@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  for (int64_t p = 0; p < 4; p++) {
    const int64_t p0 = p;
    #pragma omp simd
    for (int64_t i = 0; i < 5; i++) {
      const float v0 = b1[p0 * 5LL + i];
      b0[p0 * 12LL + i] = v0;
    }
  }
}

/* steps 1 */
void kernel1(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  for (int64_t p = 0; p < 4; p++) {
    const int64_t p0 = p;
    #pragma omp simd
    for (int64_t i = 0; i < 7; i++) {
      const float v0 = b1[p0 * 7LL + i];
      const float v1 = v0 * ((float)0x1.0000000000000p+1);
      b0[p0 * 12LL + i] = v1;
    }
  }
}

