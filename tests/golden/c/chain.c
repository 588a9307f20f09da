// # arena: 0 bytes
//    0 kernel over (70, 100): map add: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  #pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < 2; p++) {
    const int64_t end = (p + 1) * 4096LL < 7000 ? (p + 1) * 4096LL : 7000;
    #pragma omp simd
    for (int64_t i = p * 4096LL; i < end; i++) {
      const float v0 = b1[i];
      const float v1 = v0 * ((float)0x1.0000000000000p-1);
      const float v2 = gh_exp_f32(v1);
      const float v3 = b2[i];
      const float v4 = gh_tanh_f32(v3);
      const float v5 = v2 + v4;
      b0[i] = v5;
    }
  }
}

