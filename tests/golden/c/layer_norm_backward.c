// # arena: 0 bytes
//    0 kernel over (64, 256): sum sum, sum sum, map add, sum sum, map mul, sum sum, map add: b0@input:0 b1@input:1 b2@input:2 b3@input:3 -> b6@output:0 b10@output:1

/* steps 0: parallel = 1, n_p0 = 64, n_i = 256, step0 = 256, count4 = 256 */
void kernel0(void **a) {
  const int64_t parallel = (int64_t)a[9];
  const int64_t n_p0 = (int64_t)a[10];
  const int64_t n_i = (int64_t)a[11] & -16;
  const int64_t step0 = (int64_t)a[12];
  const int64_t count4 = (int64_t)a[13];
  float *b0 = a[0];
  float *b1 = a[1];
  float *b2 = a[2];
  float *b3 = a[3];
  float *b4 = a[4];
  const float b5 = (float)*(double *)a[5];
  const float b6 = (float)*(double *)a[6];
  const float b7 = (float)*(double *)a[7];
  float *b8 = a[8];
  #pragma omp parallel for schedule(static) if(parallel)
  for (int64_t p0 = 0; p0 < n_p0; p0++) {
    double t0 = 0;
    double t1 = 0;
     {
      float s2[16] = {[0 ... 15] = 0};
      float s3[16] = {[0 ... 15] = 0};
      for (int64_t at = 0; at < n_i; at += 16) {
        #pragma omp simd
        for (int k = 0; k < 16; k++) {
          const int64_t i = at + k;
          const float v4 = b2[p0 * step0 + i];
          const float v5 = b3[p0 * step0 + i];
          const float v6 = b4[i];
          const float v7 = v5 * v6;
          s2[k] = s2[k] + v4;
          s3[k] = s3[k] + v7;
        }
      }
      GH_HALVES(16) s2[k] = s2[k] + s2[k + h];
      t0 = t0 + s2[0];
      GH_HALVES(16) s3[k] = s3[k] + s3[k + h];
      t1 = t1 + s3[0];
    }
    const float r8 = (float)t0;
    const float r9 = (float)t1;
    double t10 = 0;
    double t11 = 0;
     {
      const float v12 = r8 / b5;
      float s13[16] = {[0 ... 15] = 0};
      float s14[16] = {[0 ... 15] = 0};
      for (int64_t at = 0; at < n_i; at += 16) {
        #pragma omp simd
        for (int k = 0; k < 16; k++) {
          const int64_t i = at + k;
          const float v4 = b2[p0 * step0 + i];
          const float v15 = v4 - v12;
          const float v16 = v15 * v15;
          const float v5 = b3[p0 * step0 + i];
          const float v6 = b4[i];
          const float v7 = v5 * v6;
          const float v17 = v7 * v15;
          s13[k] = s13[k] + v16;
          s14[k] = s14[k] + v17;
        }
      }
      GH_HALVES(16) s13[k] = s13[k] + s13[k + h];
      t10 = t10 + s13[0];
      GH_HALVES(16) s14[k] = s14[k] + s14[k + h];
      t11 = t11 + s14[0];
    }
    const float r18 = (float)t10;
    const float r19 = (float)t11;
     {
      const float v12 = r8 / b5;
      const float v20 = r18 / b6;
      const float v21 = v20 + b7;
      const float v22 = gh_sqrt_f32(v21);
      const float v23 = ((float)0x1.0000000000000p+0) / v22;
      const float v24 = (float)(-r19);
      const float v25 = v23 / v22;
      const float v26 = v24 * v25;
      const float v27 = v22 + v22;
      const float v28 = v26 / v27;
      const float v29 = v28 / b6;
      const float v30 = r9 * v23;
      const float v31 = v12 * ((float)count4);
      const float v32 = r8 - v31;
      const float v33 = v32 * v29;
      const float v34 = v30 + v33;
      const float v35 = v34 + v33;
      const float v36 = (float)(-v35);
      const float v37 = v36 / b5;
      #pragma omp simd
      for (int64_t i = 0; i < n_i; i++) {
        const float v4 = b2[p0 * step0 + i];
        const float v15 = v4 - v12;
        const float v38 = v15 * v23;
        const float v6 = b4[i];
        const float v39 = v38 * v6;
        const float v40 = b8[i];
        const float v41 = v39 + v40;
        const float v5 = b3[p0 * step0 + i];
        const float v7 = v5 * v6;
        const float v42 = v7 * v23;
        const float v43 = v29 * v15;
        const float v44 = v42 + v43;
        const float v45 = v44 + v43;
        const float v46 = v45 + v37;
        b0[p0 * step0 + i] = v41;
        b1[p0 * step0 + i] = v46;
      }
    }
  }
}
