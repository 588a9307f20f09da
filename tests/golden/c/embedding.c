// # arena: 0 bytes
//    0 kernel over (5, 16): map gather: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  int64_t *b1 = a[1];
  int64_t *b2 = a[2];
  float *b3 = a[3];
  for (int64_t p = 0; p < 5; p++) {
    const int64_t p0 = p;
    const int64_t v0 = b1[p0];
    const uint8_t v1 = v0 < ((int64_t)0LL);
    const int64_t v2 = (int64_t)(v0 - ((int64_t)10LL));
    const int64_t v3 = v1 ? v2 : v0;
    #pragma omp simd
    for (int64_t i = 0; i < 16; i++) {
      const float v4 = b3[i + 16LL * gh_index((int64_t)v3, 10LL, b2)];
      b0[p0 * 16LL + i] = v4;
    }
  }
}

