// # arena: 0 bytes
//    0 kernel over (300, 200): sum sum: b0@input:0 -> b1@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  #pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < 300; p++) {
    const int64_t p0 = p;
    float t0 = 0;
     {
      float s1 = 0;
      #pragma omp simd reduction(+ : s1)
      for (int64_t i = 0; i < 200; i++) {
        const float v2 = b1[p0 * 200LL + i];
        s1 += v2;
      }
      t0 += s1;
    }
    const float r3 = (float)t0;
    b0[p0] = r3;
  }
}

