// # arena: 320 bytes
//    0 kernel over (8, 4, 6, 6): sum sum, sum sum, sum sum, sum sum: b0@input:0 b2@input:2 -> b3@arena:0 b4@arena:64 b5@arena:128 b7@arena:192
//    1 kernel over (1, 4, 1, 1): map div: b1@input:1 b4@arena:64 b5@arena:128 -> b6@arena:256
//    2 kernel over (8, 4, 6, 6): map add: b0@input:0 b1@input:1 b2@input:2 b3@arena:0 b4@arena:64 b6@arena:256 b7@arena:192 -> b8@output:1
//    3 kernel over (4,): map reshape: b4@arena:64 b5@arena:128 -> b9@output:0

/* steps 0: parallel = 0, n_p0 = 4, n_i = 36, n_q0 = 8, step0 = 36, step1 = 144 */
void kernel0(void **a) {
  const int64_t parallel = (int64_t)a[7];
  const int64_t n_p0 = (int64_t)a[8];
  const int64_t n_i = (int64_t)a[9];
  const int64_t n_q0 = (int64_t)a[10];
  const int64_t step0 = (int64_t)a[11];
  const int64_t step1 = (int64_t)a[12];
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  float *b3 = a[3];
  float *b4 = a[4];
  float *b5 = a[5];
  const float b6 = (float)*(double *)a[6];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    double t0 = 0;
    double t1 = 0;
    for (int64_t q0 = 0; q0 < n_q0; q0++) {
       {
        float s2[16] = {[0 ... 15] = 0};
        float s3[16] = {[0 ... 15] = 0};
        for (int64_t at = 0; at < n_i; at += 16) {
          const int met = at + 16 <= n_i ? 0 : at + 16 - n_i;
          #pragma omp simd
          for (int k = 0; k < 16; k++) {
            const int64_t i = at - met + k;
            const float v4 = b4[p0 * step0 + q0 * step1 + i];
            const float v5 = b5[p0 * step0 + q0 * step1 + i];
            s2[k] = k >= met ? s2[k] + v4 : s2[k];
            s3[k] = k >= met ? s3[k] + v5 : s3[k];
          }
        }
        GH_HALVES(16) s2[k] = s2[k] + s2[k + h];
        t0 = t0 + s2[0];
        GH_HALVES(16) s3[k] = s3[k] + s3[k + h];
        t1 = t1 + s3[0];
      }
    }
    const float r6 = (float)t0;
    b0[p0] = r6;
    const float r7 = (float)t1;
    b3[p0] = r7;
    double t8 = 0;
    double t9 = 0;
    for (int64_t q0 = 0; q0 < n_q0; q0++) {
       {
        const float v10 = r6 / b6;
        float s11[16] = {[0 ... 15] = 0};
        float s12[16] = {[0 ... 15] = 0};
        for (int64_t at = 0; at < n_i; at += 16) {
          const int met = at + 16 <= n_i ? 0 : at + 16 - n_i;
          #pragma omp simd
          for (int k = 0; k < 16; k++) {
            const int64_t i = at - met + k;
            const float v4 = b4[p0 * step0 + q0 * step1 + i];
            const float v13 = v4 - v10;
            const float v14 = v13 * v13;
            const float v5 = b5[p0 * step0 + q0 * step1 + i];
            const float v15 = v5 * v13;
            s11[k] = k >= met ? s11[k] + v14 : s11[k];
            s12[k] = k >= met ? s12[k] + v15 : s12[k];
          }
        }
        GH_HALVES(16) s11[k] = s11[k] + s11[k + h];
        t8 = t8 + s11[0];
        GH_HALVES(16) s12[k] = s12[k] + s12[k + h];
        t9 = t9 + s12[0];
      }
    }
    const float r16 = (float)t8;
    b1[p0] = r16;
    const float r17 = (float)t9;
    b2[p0] = r17;
  }
}

/* steps 1: n_i = 4 */
void kernel1(void **a) {
  const int64_t n_i = (int64_t)a[6];
  float *b0 = a[0];
  const float b1 = (float)*(double *)a[1];
  const float b2 = (float)*(double *)a[2];
  float *b3 = a[3];
  float *b4 = a[4];
  float *b5 = a[5];
   {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
      const float v0 = b3[i];
      const float v1 = b4[i];
      const float v2 = v0 * v1;
      const float v3 = (float)(-v2);
      const float v4 = b5[i];
      const float v5 = v4 / b1;
      const float v6 = v5 + b2;
      const float v7 = gh_sqrt_f32(v6);
      const float v8 = ((float)0x1.0000000000000p+0) / v7;
      const float v9 = v8 / v7;
      const float v10 = v3 * v9;
      const float v11 = v7 + v7;
      const float v12 = v10 / v11;
      const float v13 = v12 / b1;
      b0[i] = v13;
    }
  }
}

/* steps 2: n_i = 36, parallel = 1, n_p0 = 8, n_p1 = 4, count4 = 288, step0 = 144, step1 = 36 */
void kernel2(void **a) {
  const int64_t n_i = (int64_t)a[11];
  const int64_t parallel = (int64_t)a[12];
  const int64_t n_p0 = (int64_t)a[13];
  const int64_t n_p1 = (int64_t)a[14];
  const int64_t count4 = (int64_t)a[15];
  const int64_t step0 = (int64_t)a[16];
  const int64_t step1 = (int64_t)a[17];
  float *b0 = a[0];
  float *b1 = a[1];
  const float b2 = (float)*(double *)a[2];
  const float b3 = (float)*(double *)a[3];
  float *b4 = a[4];
  float *b5 = a[5];
  float *b6 = a[6];
  const float b7 = (float)*(double *)a[7];
  float *b8 = a[8];
  float *b9 = a[9];
  float *b10 = a[10];
  #pragma omp parallel for schedule(static) collapse(2) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    for (int64_t p1 = 0; p1 < n_p1; p1++) {
      const float v0 = b1[p1];
      const float v1 = v0 / b2;
      const float v2 = v1 + b3;
      const float v3 = gh_sqrt_f32(v2);
      const float v4 = ((float)0x1.0000000000000p+0) / v3;
      const float v5 = b4[p1];
      const float v6 = v4 * v5;
      const float v7 = b5[p1];
      const float v8 = b6[p1];
      const float v9 = v8 / b7;
      const float v10 = b8[p1];
      const float v11 = v10 * v6;
      const float v12 = v9 * ((float)count4);
      const float v13 = v8 - v12;
      const float v14 = v13 * v7;
      const float v15 = v11 + v14;
      const float v16 = v15 + v14;
      const float v17 = (float)(-v16);
      const float v18 = v17 / b7;
      #pragma omp simd
      for (int64_t i = 0; i < n_i; i++) {
        const float v19 = b9[p0 * step0 + p1 * step1 + i];
        const float v20 = v19 * v6;
        const float v21 = b10[p0 * step0 + p1 * step1 + i];
        const float v22 = v21 - v9;
        const float v23 = v7 * v22;
        const float v24 = v20 + v23;
        const float v25 = v24 + v23;
        const float v26 = v25 + v18;
        b0[p0 * step0 + p1 * step1 + i] = v26;
      }
    }
  }
}

/* steps 3: n_i = 4 */
void kernel3(void **a) {
  const int64_t n_i = (int64_t)a[5];
  float *b0 = a[0];
  const float b1 = (float)*(double *)a[1];
  const float b2 = (float)*(double *)a[2];
  float *b3 = a[3];
  float *b4 = a[4];
   {
    #pragma omp simd
    for (int64_t i = 0; i < n_i; i++) {
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
