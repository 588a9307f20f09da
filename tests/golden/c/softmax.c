// # arena: 0 bytes
//    0 kernel over (64, 100): max max, sum sum, map div: b0@input:0 -> b3@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  #pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < 64; p++) {
    const int64_t p0 = p;
    float kept0[100];
    float t1 = -INFINITY;
     {
      float s2 = -INFINITY;
      #pragma omp simd reduction(gh_max : s2)
      for (int64_t i = 0; i < 100; i++) {
        const float v3 = b1[p0 * 100LL + i];
        s2 = gh_maximum_f32(s2, v3);
      }
      t1 = gh_maximum_f32(t1, s2);
    }
    const float r4 = (float)t1;
    float t5 = 0;
     {
      float s6 = 0;
      #pragma omp simd reduction(+ : s6)
      for (int64_t i = 0; i < 100; i++) {
        const float v3 = b1[p0 * 100LL + i];
        const float v7 = v3 - r4;
        const float v8 = gh_exp_f32(v7);
        kept0[i] = v8;
        s6 += v8;
      }
      t5 += s6;
    }
    const float r9 = (float)t5;
     {
      #pragma omp simd
      for (int64_t i = 0; i < 100; i++) {
        const float v10 = kept0[i] / r9;
        b0[p0 * 100LL + i] = v10;
      }
    }
  }
}

