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
template <int N> DEVICE void store_floats(float* p, const float* x) {
  u32 w[N];
#pragma unroll
  for (int i = 0; i < N; i++) w[i] = as_bits(x[i]);
  store_words<N>(p, w);
}

// A row of 32 N numbers, held by a warp: each lane has N neighbours, or fours of neighbours where rows are wide, so
// that the lanes together read and write whole stretches.
template <int N> struct Run {
  static constexpr int LENGTH = STREAMED && N > 4 ? 4 : N;
  static_assert(N % LENGTH == 0, "numbers of a lane must divide into fours");
};
template <int N> DEVICE int place(int i, int lane) { return (i / Run<N>::LENGTH * 32 + lane) * Run<N>::LENGTH; }

template <int N> DEVICE void fetch_row(u32* w, const bf16* row, int lane) {
  constexpr int RUN = Run<N>::LENGTH;
#pragma unroll
  for (int i = 0; i < N; i += RUN) fetch_words<RUN / 2>(w + i / 2, row + place<N>(i, lane));
}
template <int N> DEVICE void fetch_row(float* x, const float* row, int lane) {
  constexpr int RUN = Run<N>::LENGTH;
#pragma unroll
  for (int i = 0; i < N; i += RUN) fetch_floats<RUN>(x + i, row + place<N>(i, lane));
}
template <int N> DEVICE void store_row(bf16* row, const u32* w, int lane) {
  constexpr int RUN = Run<N>::LENGTH;
#pragma unroll
  for (int i = 0; i < N; i += RUN) store_words<RUN / 2>(row + place<N>(i, lane), w + i / 2);
}
template <int N> DEVICE void store_row(bf16* row, const float* x, int lane) {
  u32 w[N / 2];
#pragma unroll
  for (int i = 0; i < N; i += 2) w[i / 2] = pack(x[i], x[i + 1]);
  store_row<N>(row, w, lane);
}
template <int N> DEVICE void store_row(float* row, const float* x, int lane) {
  constexpr int RUN = Run<N>::LENGTH;
#pragma unroll
  for (int i = 0; i < N; i += RUN) {
    float* p = row + place<N>(i, lane);
    if constexpr (STREAMED && RUN == 4) {
      const Bits128 v = {as_bits(x[i]), as_bits(x[i + 1]), as_bits(x[i + 2]), as_bits(x[i + 3])};
      put16(p, v);
    } else {
      store_floats<RUN>(p, x + i);
    }
  }
}
// a row in shared memory: in wide loads, since single ones would meet in the same banks
template <int N> DEVICE void read_row(float* x, const float* row, int lane) {
  constexpr int RUN = Run<N>::LENGTH;
  if constexpr (RUN % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const Bits128 v = *(const Bits128*)(row + place<N>(i, lane) + i % RUN);
      x[i] = as_float(v.x); x[i + 1] = as_float(v.y); x[i + 2] = as_float(v.z); x[i + 3] = as_float(v.w);
    }
  } else {
    static_assert(N == 2, "2, or a multiple of 4 numbers");
    const Bits64 v = ((const Bits64*)row)[lane];
    x[0] = as_float(v.x); x[1] = as_float(v.y);
  }
}

// A thread's EACH neighbouring numbers, at once where their number allows it.
DEVICE void load_each(float (&x)[EACH], const float* p) {
  if constexpr (EACH == 4) {
    const Bits128 v = *(const Bits128*)p;
    x[0] = as_float(v.x); x[1] = as_float(v.y); x[2] = as_float(v.z); x[3] = as_float(v.w);
  } else if constexpr (EACH == 2) {
    const Bits64 v = *(const Bits64*)p;
    x[0] = as_float(v.x); x[1] = as_float(v.y);
  } else {
#pragma unroll
    for (int e = 0; e < EACH; e++) x[e] = p[e];
  }
}
DEVICE void load_each(bf16 (&x)[EACH], const bf16* p) {
  if constexpr (EACH == 4) {
    const Bits64 v = *(const Bits64*)p;
    x[0] = (bf16)v.x; x[1] = (bf16)(v.x >> 16); x[2] = (bf16)v.y; x[3] = (bf16)(v.y >> 16);
  } else if constexpr (EACH == 2) {
    const u32 v = *(const u32*)p;
    x[0] = (bf16)v; x[1] = (bf16)(v >> 16);
  } else {
#pragma unroll
    for (int e = 0; e < EACH; e++) x[e] = p[e];
  }
}
DEVICE void store_each(float* p, const float (&x)[EACH]) {
  if constexpr (EACH == 4 || EACH == 2) {
    store_floats<EACH>(p, x);
  } else {
#pragma unroll
    for (int e = 0; e < EACH; e++) p[e] = x[e];
  }
}
// rounded
DEVICE void store_each(bf16* p, const float (&x)[EACH]) {
  if constexpr (EACH == 4) {
    const Bits64 v = {pack(x[0], x[1]), pack(x[2], x[3])};
    *(Bits64*)p = v;
  } else if constexpr (EACH == 2) {
    *(u32*)p = pack(x[0], x[1]);
  } else {
#pragma unroll
    for (int e = 0; e < EACH; e++) p[e] = narrow(x[e]);
  }
}
// what becomes of a number when it is rounded
DEVICE float rounded(float x) { return widen(narrow(x)); }

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

// sum and largest over the group of the latent that a thread's columns belong to
DEVICE float group_sum(const float (&x)[EACH]) {
  float sum = x[0];
#pragma unroll
  for (int e = 1; e < EACH; e++) sum += x[e];
  return lanes_sum<GROUP_LANES>(sum);
}
DEVICE float group_max(const float (&x)[EACH]) {
  float most = x[0];
#pragma unroll
  for (int e = 1; e < EACH; e++) most = most > x[e] ? most : x[e];
  return lanes_max<GROUP_LANES>(most);
}
// 1 at the class that a uniform number falls to, 0 at others
DEVICE void draw(float (&one)[EACH], const float (&prob)[EACH], float noise, int lane) {
  float below[EACH], counts[EACH];  // the first: sums of a class and all before
  below[0] = prob[0];
#pragma unroll
  for (int e = 1; e < EACH; e++) below[e] = below[e - 1] + prob[e];
  float& last = below[EACH - 1];
#pragma unroll
  for (int by = 1; by < GROUP_LANES; by *= 2) {
    const float other = warp_up(last, by, GROUP_LANES);
    if (lane % GROUP_LANES >= by) last += other;
  }
  if constexpr (EACH > 1) {
    const float before = warp_up(last, 1, GROUP_LANES);
#pragma unroll
    for (int e = 0; e < EACH - 1; e++)
      if (lane % GROUP_LANES) below[e] += before;
  }
  const float total = warp_at(last, GROUP_LANES - 1, GROUP_LANES);
#pragma unroll
  for (int e = 0; e < EACH; e++) counts[e] = below[e] < noise * total ? 1.f : 0.f;
  const int chosen = (int)group_sum(counts);
#pragma unroll
  for (int e = 0; e < EACH; e++) one[e] = chosen == lane % GROUP_LANES * EACH + e ? 1.f : 0.f;
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
