// # arena: 384 bytes
//    0 kernel over (8, 4, 6, 6): sum sum, sum sum, sum sum, sum sum: b0@input:0 b2@input:2 -> b3@arena:0 b4@arena:64 b6@arena:128 b8@arena:192
//    1 kernel over (1, 4, 1, 1): map mul, map div: b1@input:1 b4@arena:64 b6@arena:128 -> b5@arena:256 b7@arena:320
//    2 kernel over (8, 4, 6, 6): map add: b0@input:0 b2@input:2 b3@arena:0 b5@arena:256 b7@arena:320 b8@arena:192 -> b9@output:1
//    3 kernel over (4,): map reshape: b4@arena:64 b6@arena:128 -> b10@output:0

/* steps 0 */
void kernel0(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  float *b3 = a[3];
  float *b4 = a[4];
  float *b5 = a[5];
  const float b6 = (float)*(double *)a[6];
  for (int64_t p = 0; p < 4; p++) {
    const int64_t p0 = p;
    float t0 = 0;
    float t1 = 0;
    for (int64_t q0 = 0; q0 < 8; q0++) {
       {
        float s2 = 0;
        float s3 = 0;
        #pragma omp simd reduction(+ : s2) reduction(+ : s3)
        for (int64_t i = 0; i < 36; i++) {
          const float v4 = b4[p0 * 36LL + q0 * 144LL + i];
          const float v5 = b5[p0 * 36LL + q0 * 144LL + i];
          s2 += v4;
          s3 += v5;
        }
        t0 += s2;
        t1 += s3;
      }
    }
    const float r6 = (float)t0;
    b0[p0] = r6;
    const float r7 = (float)t1;
    b3[p0] = r7;
    float t8 = 0;
    float t9 = 0;
    for (int64_t q0 = 0; q0 < 8; q0++) {
       {
        const float v10 = r6 / b6;
        float s11 = 0;
        float s12 = 0;
        #pragma omp simd reduction(+ : s11) reduction(+ : s12)
        for (int64_t i = 0; i < 36; i++) {
          const float v4 = b4[p0 * 36LL + q0 * 144LL + i];
          const float v13 = v4 - v10;
          const float v14 = v13 * v13;
          const float v5 = b5[p0 * 36LL + q0 * 144LL + i];
          const float v15 = v5 * v13;
          s11 += v14;
          s12 += v15;
        }
        t8 += s11;
        t9 += s12;
      }
    }
    const float r16 = (float)t8;
    b1[p0] = r16;
    const float r17 = (float)t9;
    b2[p0] = r17;
  }
}

/* steps 1 */
void kernel1(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  const float b2 = (float)*(double *)a[2];
  const float b3 = (float)*(double *)a[3];
  float *b4 = a[4];
  float *b5 = a[5];
  float *b6 = a[6];
  for (int64_t p = 0; p < 1; p++) {
    #pragma omp simd
    for (int64_t i = 0; i < 4; i++) {
      const float v0 = b4[i];
      const float v1 = v0 / b2;
      const float v2 = v1 + b3;
      const float v3 = gh_sqrt_f32(v2);
      const float v4 = ((float)0x1.0000000000000p+0) / v3;
      const float v5 = b5[i];
      const float v6 = v4 * v5;
      const float v7 = b6[i];
      const float v8 = v7 * v5;
      const float v9 = (float)(-v8);
      const float v10 = v4 / v3;
      const float v11 = v9 * v10;
      const float v12 = v3 + v3;
      const float v13 = v11 / v12;
      const float v14 = v13 / b2;
      b0[i] = v6;
      b1[i] = v14;
    }
  }
}

/* steps 2 */
void kernel2(void **a) {
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  float *b3 = a[3];
  const float b4 = (float)*(double *)a[4];
  float *b5 = a[5];
  float *b6 = a[6];
  float *b7 = a[7];
  #pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < 32; p++) {
    const int64_t p1 = p % 4;
    const int64_t p0 = p / 4;
    const float v0 = b1[p1];
    const float v1 = b2[p1];
    const float v2 = b3[p1];
    const float v3 = v2 / b4;
    const float v4 = b5[p1];
    const float v5 = v4 * v0;
    const float v6 = v3 * ((float)0x1.2000000000000p+8);
    const float v7 = v2 - v6;
    const float v8 = v7 * v1;
    const float v9 = v5 + v8;
    const float v10 = v9 + v8;
    const float v11 = (float)(-v10);
    const float v12 = v11 / b4;
    #pragma omp simd
    for (int64_t i = 0; i < 36; i++) {
      const float v13 = b6[p0 * 144LL + p1 * 36LL + i];
      const float v14 = v13 * v0;
      const float v15 = b7[p0 * 144LL + p1 * 36LL + i];
      const float v16 = v15 - v3;
      const float v17 = v1 * v16;
      const float v18 = v14 + v17;
      const float v19 = v18 + v17;
      const float v20 = v19 + v12;
      b0[p0 * 144LL + p1 * 36LL + i] = v20;
    }
  }
}

/* steps 3 */
void kernel3(void **a) {
  float *b0 = a[0];
  const float b1 = (float)*(double *)a[1];
  const float b2 = (float)*(double *)a[2];
  float *b3 = a[3];
  float *b4 = a[4];
  for (int64_t p = 0; p < 1; p++) {
    #pragma omp simd
    for (int64_t i = 0; i < 4; i++) {
      const float v0 = b3[i];
      const float v1 = b4[i];
      const float v2 = v1 / b1;
      const float v3 = v2 + b2;
      const float v4 = gh_sqrt_f32(v3);
      const float v5 = ((float)0x1.0000000000000p+0) / v4;
      const float v6 = v0 * v5;
      b0[i] = v6;
    }
  }
}

