// # arena: 0 bytes
//    0 kernel over (100, 10): map where: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0: n_i = 1000 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[9];
  float *b0 = a[0];
  uint32_t *b1 = a[1];
  uint32_t *b2 = a[2];
  uint32_t *b3 = a[3];
  uint32_t *b4 = a[4];
  const float b5 = (float)*(double *)a[5];
  const float b6 = (float)*(double *)a[6];
  const float b7 = (float)*(double *)a[7];
  float *b8 = a[8];
   {
    const uint32_t v0 = b1[0];
    const uint32_t v1 = b2[0];
    const uint32_t v2 = b3[0];
    const uint32_t v3 = b4[0];
    uint32_t room4[GH_WORDS(n_i)];
    const uint32_t *words5 = gh_random_row(0, n_i, v0, v1, v2, v3, room4);
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const int32_t v6 = ((int32_t)words5[i]);
      const int32_t v7 = gh_shift_right_i32(v6, ((int32_t)8LL));
      const float v8 = (float)v7;
      const float v9 = v8 * b5;
      const float v10 = v9 + ((float)0x1.0000000000000p-1);
      const uint8_t v11 = v10 < b6;
      const float v12 = b8[i];
      const float v13 = v12 * b7;
      const float v14 = v11 ? v13 : ((float)0x0.0p+0);
      b0[i] = v14;
    }
  }
}
