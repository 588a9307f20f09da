// # arena: 0 bytes
//    0 kernel over (50,): map add: b0@input:0 b1@input:1 -> b2@output:0

/* steps 0: n_i = 50 */
void kernel0(void **a) {
  const int64_t n_i = (int64_t)a[3];
  int32_t *b0 = a[0];
  int32_t *b1 = a[1];
  int32_t *b2 = a[2];
   {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const int32_t v0 = b1[i];
      const int32_t v1 = gh_div_i32(v0, ((int32_t)3LL));
      const int32_t v2 = b2[i];
      const int32_t v3 = gh_remainder_i32(v2, ((int32_t)4LL));
      const int32_t v4 = (int32_t)(v1 + v3);
      b0[i] = v4;
    }
  }
}
