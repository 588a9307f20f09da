// # arena: 0 bytes
//    0 kernel over (50, 20): map add: b0@input:0 -> b1@output:0

/* steps 0: n_i = 1000 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[3];
  uint16_t *b0 = a[0];
  const float b1 = gh_round_bf16((float)*(double *)a[1]);
  float *b2 = a[2];
   {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v0 = b2[i];
      const float v1 = gh_round_bf16((float)v0);
      const float v2 = gh_round_bf16(v1 * b1);
      const float v3 = gh_round_bf16(v2 + ((float)0x1.0000000000000p+0));
      b0[i] = gh_bits_bf16(v3);
    }
  }
}
