// # arena: 0 bytes
//    0 template window_select: b0@input:0 -> b1@output:0

/* steps 0 */
void kernel0(void **a) {
float *b0 = a[0];
float *b1 = a[1];
float *b2 = a[2];
for (int64_t p = 0; p < 32; p++) {
const int64_t o1 = (p) % 4;
const int64_t o0 = (p / 4) % 4;
const int64_t l0 = p / 16;
#pragma omp simd
for (int64_t i = 0; i < 4; i++) {
float best = b1[l0 * 256LL + i * 64LL + o0 * 16LL + o1 * 2LL + 0];
int32_t at = 0;
{ const float key = b1[l0 * 256LL + i * 64LL + o0 * 16LL + o1 * 2LL + 1]; at = key > best ? 1 : key != key ? (best == best ? 1 : at) : at; best = key > best ? key : key != key ? (best == best ? key : best) : best; }
{ const float key = b1[l0 * 256LL + i * 64LL + o0 * 16LL + o1 * 2LL + 8]; at = key > best ? 2 : key != key ? (best == best ? 2 : at) : at; best = key > best ? key : key != key ? (best == best ? key : best) : best; }
{ const float key = b1[l0 * 256LL + i * 64LL + o0 * 16LL + o1 * 2LL + 9]; at = key > best ? 3 : key != key ? (best == best ? 3 : at) : at; best = key > best ? key : key != key ? (best == best ? key : best) : best; }
b2[l0 * 64LL + i * 16LL + o0 * 4LL + o1 * 1LL] = best;
}
}
}
