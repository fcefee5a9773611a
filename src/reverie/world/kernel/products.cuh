// Products: inputs (16, K) times weights (K, 8 NTILES). The warps share K, and their shares are added up through shared
// memory.
template <int K, int NTILES> struct Weights {
  static constexpr int ALL = K / 16;                        // slices of 16 along K
  static constexpr int STEPS = (ALL + WARPS - 1) / WARPS;   // of those, a warp's
  static constexpr bool EVEN = ALL % WARPS == 0;
  static_assert(K % 16 == 0, "K must divide into slices");
  u32 at[STEPS][NTILES][2];
};

// Fills weights before the loop over the window. `get(k, n)` gives two numbers: for k and k + 1, column n.
// Lane 4 g + i holds, for column g: k = 2 i, 2 i + 1 in its first word, k = 2 i + 8, 2 i + 9 in its second.
template <int K, int NTILES, class Get>
DEVICE void load_weights(Weights<K, NTILES>& weights, const Here& here, Get get) {
  const int g = here.lane >> 2, i = here.lane & 3;
#pragma unroll
  for (int s = 0; s < Weights<K, NTILES>::STEPS; s++) {
    const int slice = here.warp * Weights<K, NTILES>::STEPS + s;
#pragma unroll
    for (int n = 0; n < NTILES; n++) {
      weights.at[s][n][0] = weights.at[s][n][1] = 0u;
      if (slice < Weights<K, NTILES>::ALL) {
        weights.at[s][n][0] = get(slice * 16 + 2 * i, n * 8 + g);
        weights.at[s][n][1] = get(slice * 16 + 2 * i + 8, n * 8 + g);
      }
    }
  }
}
// numbers k and k + 1 of column n, of a matrix whose rows are columns (n, k) or rows (k, n)
DEVICE u32 pair_along(const bf16* weight, int width, int k, int n) {
  return *(const u32*)(weight + (size_t)n * width + k);
}
DEVICE u32 pair_across(const bf16* weight, int width, int k, int n) {
  const bf16* p = weight + (size_t)k * width + n;
  return (u32)p[0] | ((u32)p[width] << 16);
}

// Lane 4 g + i holds of rows g and g + 8 the columns 2 i, 2 i + 1 (words 0 and 1) and 2 i + 8, 2 i + 9 (words 2 and 3).
DEVICE void load_inputs(u32* a, const bf16* inputs, int width, int k, int lane) {
  const bf16* p = inputs + (lane >> 2) * width + k + (lane & 3) * 2;
  a[0] = *(const u32*)p;
  a[1] = *(const u32*)(p + 8 * width);
  a[2] = *(const u32*)(p + 8);
  a[3] = *(const u32*)(p + 8 * width + 8);
}

// this warp's share of a product; inputs are rows of `width` numbers in shared memory
template <int K, int NTILES, class Stream>
DEVICE void multiply(float (&d)[NTILES][4], const Weights<K, NTILES>& weights, Stream&, const Here& here,
                     const bf16* inputs, int width) {
#pragma unroll
  for (int n = 0; n < NTILES; n++) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0.f;
#pragma unroll
  for (int s = 0; s < Weights<K, NTILES>::STEPS; s++) {
    const int slice = here.warp * Weights<K, NTILES>::STEPS + s;
    if (Weights<K, NTILES>::EVEN || slice < Weights<K, NTILES>::ALL) {  // the same for all lanes
      u32 a[4];
      load_inputs(a, inputs, width, slice * 16, here.lane);
#pragma unroll
      for (int n = 0; n < NTILES; n++) mma(d[n], a, weights.at[s][n]);
    }
  }
}

// Rows of `sums` are 8 NTILES + SPARE wide. Lane 4 g + i holds of rows g and g + 8 the columns 2 i and 2 i + 1.
template <int NTILES>
DEVICE void keep_sums(const Here& here, const float (&d)[NTILES][4], int first = 0, int all = NTILES) {
  const int width = all * 8 + SPARE;
  float* p = here.sums + (here.warp * ROWS + (here.lane >> 2)) * width + first * 8 + (here.lane & 3) * 2;
#pragma unroll
  for (int n = 0; n < NTILES; n++) {
    const Bits64 upper = {as_bits(d[n][0]), as_bits(d[n][1])}, lower = {as_bits(d[n][2]), as_bits(d[n][3])};
    *(Bits64*)(p + n * 8) = upper;
    *(Bits64*)(p + 8 * width + n * 8) = lower;
  }
}
// the numbers at this thread's row and columns from one on, added up over warps
template <int NTILES>
DEVICE void sum_warps(float (&sum)[EACH], const Here& here, int column, int from = 0, int to = WARPS) {
  constexpr int width = NTILES * 8 + SPARE;
#pragma unroll
  for (int e = 0; e < EACH; e++) sum[e] = 0.f;
#pragma unroll
  for (int w = 0; w < WARPS; w++)
    if (w >= from && w < to) {
      float part[EACH];
      load_each(part, here.sums + (w * ROWS + here.row) * width + column);
#pragma unroll
      for (int e = 0; e < EACH; e++) sum[e] += part[e];
    }
}
// between multiplying and keeping sums: where these take the place of inputs, all warps must have read those
DEVICE void settle() {
  if (STREAMED) block_sync();
}
// all of it, for a tile: inputs must have been written; ends with the sums at this thread's row and columns
template <class Factor, class Stream>
DEVICE void product(float (&sum)[EACH], const Here& here, const Factor& weights, Stream& stream, int width) {
  float d[TILE / 8][4];
  block_sync();
  multiply(d, weights, stream, here, here.inputs, width);
  settle();
  keep_sums(here, d);
  block_sync();
  sum_warps<TILE / 8>(sum, here, here.col);
}

// WIDTH numbers of each row to shared memory; `stride` is between rows in global memory
template <int WIDTH> DEVICE void stage(const Here& here, const bf16* from, int stride, int width) {
  constexpr int CHUNKS = ROWS * WIDTH / 8, ROUNDS = (CHUNKS + THREADS - 1) / THREADS;
  u32 w[ROUNDS][4];
#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {  // all loads set out before the first is needed
    const int chunk = here.tid + i * THREADS, row = chunk / (WIDTH / 8), at = chunk % (WIDTH / 8) * 8;
    if (CHUNKS % THREADS == 0 || chunk < CHUNKS) words16(w[i], from + (size_t)row * stride + at);
  }
#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    const int chunk = here.tid + i * THREADS, row = chunk / (WIDTH / 8), at = chunk % (WIDTH / 8) * 8;
    if (CHUNKS % THREADS == 0 || chunk < CHUNKS) store_words<4>(here.inputs + row * width + at, w[i]);
  }
}
// a vector of floats to shared memory
DEVICE void keep_vector(const Here& here, float* to, const float* from, int size) {
  for (int i = here.tid; i < size; i += THREADS) to[i] = from[i];
}
