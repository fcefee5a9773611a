// Numbers of a lane, and rows that a warp holds.
DEVICE float low(u32 word) { return as_float(word << 16); }
DEVICE float high(u32 word) { return as_float(word & 0xffff0000u); }
DEVICE float widen(bf16 bits) { return as_float((u32)bits << 16); }
DEVICE float fetch_float(const float* p) { return as_float(fetch4(p)); }

DEVICE void words16(u32* w, const void* p) { Bits128 v = fetch16(p); w[0] = v.x; w[1] = v.y; w[2] = v.z; w[3] = v.w; }

// N words from the global memory, in as few loads as there can be
template <int N> DEVICE void fetch_words(u32* w, const void* p) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) words16(w + i, (const u32*)p + i);
  } else if constexpr (N == 2) {
    Bits64 v = fetch8(p);
    w[0] = v.x; w[1] = v.y;
  } else {
    static_assert(N == 1, "1, 2, or a multiple of 4 words");
    w[0] = fetch4(p);
  }
}
template <int N> DEVICE void fetch_floats(float* x, const float* p) {
  u32 w[N];
  fetch_words<N>(w, p);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = as_float(w[i]);
}
template <int N> DEVICE void widen_words(float* x, const u32* w) {
#pragma unroll
  for (int i = 0; i < N; i += 2) { x[i] = low(w[i / 2]); x[i + 1] = high(w[i / 2]); }
}
template <int N> DEVICE void store_words(void* p, const u32* w) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) { Bits128 v = {w[i], w[i + 1], w[i + 2], w[i + 3]}; ((Bits128*)p)[i / 4] = v; }
  } else if constexpr (N == 2) {
    Bits64 v = {w[0], w[1]};
    *(Bits64*)p = v;
  } else {
    *(u32*)p = w[0];
  }
}
template <int N> DEVICE void store_halves(bf16* p, const float* x) {
  u32 w[N / 2];
#pragma unroll
  for (int i = 0; i < N; i += 2) w[i / 2] = pack(x[i], x[i + 1]);
  store_words<N / 2>(p, w);
}
template <int N> DEVICE void store_floats(float* p, const float* x) {
  u32 w[N];
#pragma unroll
  for (int i = 0; i < N; i++) w[i] = as_bits(x[i]);
  store_words<N>(p, w);
}
// a lane's numbers of a vector in shared memory: in wide loads, since single ones would meet in the same banks
template <int N> DEVICE void read_vector(float* x, const float* vector, int lane) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const Bits128 v = ((const Bits128*)(vector + lane * N))[i / 4];
      x[i] = as_float(v.x); x[i + 1] = as_float(v.y); x[i + 2] = as_float(v.z); x[i + 3] = as_float(v.w);
    }
  } else {
    static_assert(N == 2, "2, or a multiple of 4 numbers");
    const Bits64 v = ((const Bits64*)vector)[lane];
    x[0] = as_float(v.x); x[1] = as_float(v.y);
  }
}

DEVICE float warp_sum(float x) {
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) x += warp_xor(x, mask);
  return x;
}
// sums of WIDTH neighbouring lanes
template <int WIDTH> DEVICE float lanes_sum(float x) {
#pragma unroll
  for (int mask = WIDTH / 2; mask; mask >>= 1) x += warp_xor(x, mask);
  return x;
}
template <int WIDTH> DEVICE float lanes_max(float x) {
#pragma unroll
  for (int mask = WIDTH / 2; mask; mask >>= 1) { float other = warp_xor(x, mask); x = x > other ? x : other; }
  return x;
}

DEVICE float sigmoid(float x) { return fast_divide(1.f, 1.f + fast_exp(-x)); }
DEVICE float tangent(float x) { return 2.f * sigmoid(2.f * x) - 1.f; }
DEVICE float silu(float x) { return x * sigmoid(x); }
DEVICE float silu_slope(float x) { float s = sigmoid(x); return s * (1.f + x * (1.f - s)); }

// a row of 32 N numbers, held by a warp, normalised, scaled and activated
template <int N> DEVICE void tail(float* x, const float* scale) {
  float power = 0.f;
#pragma unroll
  for (int i = 0; i < N; i++) power += x[i] * x[i];
  float r = inverse_root(warp_sum(power) / (32 * N) + EPS);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = silu(x[i] * r * scale[i]);
}
// the way back: from the gradient of the result to that of the row x
template <int N> DEVICE void tail_back(float* grad, const float* x, const float* scale) {
  float power = 0.f, lean = 0.f;
#pragma unroll
  for (int i = 0; i < N; i++) power += x[i] * x[i];
  float r = inverse_root(warp_sum(power) / (32 * N) + EPS);
#pragma unroll
  for (int i = 0; i < N; i++) {
    grad[i] *= silu_slope(x[i] * r * scale[i]) * scale[i];
    lean += grad[i] * x[i] * r;
  }
  lean = warp_sum(lean) / (32 * N);
#pragma unroll
  for (int i = 0; i < N; i++) grad[i] = r * (grad[i] - x[i] * r * lean);
}
