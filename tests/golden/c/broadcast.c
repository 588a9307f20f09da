// # arena: 0 bytes
//    0 kernel over (30, 40): map add: b0@input:0 b1@input:1 b2@input:2 -> b3@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  float *b3 = a[3];
  for (int64_t p = 0; p < 30; p++) {
    const int64_t p0 = p;
    const float v0 = b1[p0];
    #pragma omp simd
    for (int64_t i = 0; i < 40; i++) {
      const float v1 = b2[p0 * 40LL + i];
      const float v2 = b3[i];
      const float v3 = v1 * v2;
      const float v4 = v3 + v0;
      b0[p0 * 40LL + i] = v4;
    }
  }
}

