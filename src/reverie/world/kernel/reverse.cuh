// The way backwards: from the gradients of states and parameters, as losses see them, to total gradients, which are
// those and what later steps add.
struct Reverse {
  // given
  const float* start; const unsigned char* first;
  const float* by_deter; const float* by_stoch; const float* by_params;
  const bf16* w_summary; const bf16* w_latent; const bf16* w_mix; const bf16* w_gates; const bf16* w_seen;
  const bf16* w_logits;
  const float* b_summary; const float* b_latent;
  const float* n_summary; const float* n_latent; const float* n_mix; const float* n_seen;
  // what the way forwards left behind
  const float* deter; const float* params; const float* summary; const float* latent; const bf16* mixed;
  const float* scale; const bf16* gates; const float* seen;
  // found
  float* total_deter;          // (T, B, D)
  float* total_stoch;          // (T, B, Z)
  // between CTAs: gradients of ...
  bf16* d_logits;              // (T, B, Z)
  float* d_inferred;           // (T, B, hidden) the posterior's activated first layer
  bf16* d_summary;             // (T, B, hidden) the summary made of state t
  bf16* d_gates;               // (T, B, blocks, 3 block)
  bf16* tilted;                // (T, B, D) the normalised outputs of mix
  float* lean;                 // (T, B, CTAS) sums of those times the outputs
  float* d_shared;             // (T, PARTS, B, 2 hidden) activated summary and latent, by parts of mix
  u32* counters; u32* fault;
  long long steps;
  bf16* packed;                // the weights, where they are streamed
};

constexpr bool KEEPS_GATES = !STREAMED || TILE == 32;  // a thread has the registers for it
struct ReverseWeights {
  Factor<!STREAMED, HIDDEN, TILE / 8> latent;  // only CTAs that work on latents
  Factor<!STREAMED, LATENT, TILE / 8> logits;  // only CTAs that work on the posterior's hidden layer
  Factor<!STREAMED, SHARED, TILE / 8> project;
  Factor<KEEPS_GATES, 3 * BLOCK, TILE / 8> gates;
  Factor<!STREAMED, PART, TILE / 8> mix_shared;
  Factor<!STREAMED, BLOCK, TILE / 8> mix_state;
  Stream<SLOTS_REVERSE> stream;
};
struct ReverseVectors {
  float b_summary[HIDDEN], n_summary[HIDDEN], b_latent[HIDDEN], n_latent[HIDDEN], n_seen[HIDDEN];
};
constexpr int REVERSE_ROW = REVERSE_WIDTH + SPARE;
constexpr int REVERSE_PRODUCTS = bytes_of_products(REVERSE_WIDTH, 2 * TILE);
constexpr int REVERSE_RING = REVERSE_PRODUCTS + (int)sizeof(ReverseVectors);
constexpr int REVERSE_BYTES = REVERSE_RING + SLOTS_REVERSE * WARPS * CELL * 16;

// gradients of the two rows that step t + 1 made of state t, before their norm; 0 where an episode began between both
DEVICE void back_to_projection(float (&grad)[2][LANE_HIDDEN], const Here& here, const Reverse& r,
                               const float* projected, const float* biases, const float* scales, const First& next,
                               int t, int offset) {
  float x[2][LANE_HIDDEN], bias[LANE_HIDDEN], scale[LANE_HIDDEN];
  read_row<LANE_HIDDEN>(bias, biases, here.lane);
  read_row<LANE_HIDDEN>(scale, scales, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t row = (size_t)(t + 1) * ROWS + here.warp * 2 + i;
    fetch_row<LANE_HIDDEN>(x[i], projected + row * HIDDEN, here.lane);
  }
  gather_parts(grad, here, r.d_shared, t + 1, offset);
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < LANE_HIDDEN; j++) x[i][j] = (next.held[i] ? 0.f : x[i][j]) + bias[j];
    tail_back<LANE_HIDDEN>(grad[i], x[i], scale);
#pragma unroll
    for (int j = 0; j < LANE_HIDDEN; j++) grad[i][j] = next.held[i] ? 0.f : grad[i][j];
  }
}

// what `undraw` needs of step t for a thread's row and columns, fetched before the wait
struct Drawn { float by_stoch[EACH], by_params[EACH], param[EACH]; };
DEVICE Drawn load_drawn(const Here& here, const Reverse& r, int t) {
  const size_t at = ((size_t)t * ROWS + here.row) * LATENT + here.cta * TILE + here.col;
  Drawn x;
  load_each(x.by_stoch, r.by_stoch + at);
  load_each(x.by_params, r.by_params + at);
  load_each(x.param, r.params + at);
  return x;
}

// phase `undraw`: total gradient of the latent, and from there to the logits
DEVICE void undraw(const Here& here, const Reverse& r, ReverseWeights& w, const ReverseVectors& v,
                   const Drawn& drawn, const First& next, bool last, int t) {
  float later[EACH] = {};
  if (!last) {
    float grad[2][LANE_HIDDEN];
    back_to_projection(grad, here, r, r.latent, v.b_latent, v.n_latent, next, t, HIDDEN);
#pragma unroll
    for (int i = 0; i < 2; i++)
      store_row<LANE_HIDDEN>(here.inputs + (here.warp * 2 + i) * REVERSE_ROW, grad[i], here.lane);
    product(later, here, w.latent, w.stream, REVERSE_ROW);
  } else {
    pass_over(w.latent, w.stream);
  }
  const size_t at = ((size_t)t * ROWS + here.row) * LATENT + here.cta * TILE + here.col;
  float total[EACH], soft[EACH], grad[EACH], lean[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    total[e] = last ? drawn.by_stoch[e] : drawn.by_stoch[e] + later[e];
    const float prob = fine_exp(drawn.param[e]);
    soft[e] = (prob - UNIMIX / CLASSES) * (1.f / (1.f - UNIMIX));
    grad[e] = (1.f - UNIMIX) * (drawn.by_params[e] / prob + total[e]);
    lean[e] = soft[e] * grad[e];
  }
  store_each(r.total_stoch + at, total);
  const float all = group_sum(lean);
#pragma unroll
  for (int e = 0; e < EACH; e++) grad[e] = soft[e] * (grad[e] - all);
  store_each(r.d_logits + at, grad);
}

// phase `unsummarise`
DEVICE void unsummarise(const Here& here, const Reverse& r, const ReverseVectors& v, const First& next, int t) {
  float grad[2][LANE_HIDDEN];
  back_to_projection(grad, here, r, r.summary, v.b_summary, v.n_summary, next, t, 0);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t row = (size_t)t * ROWS + here.warp * 2 + i;
    store_row<LANE_HIDDEN>(r.d_summary + row * HIDDEN, grad[i], here.lane);
  }
}

// phase `uninfer`: from logits to the posterior's hidden layer
DEVICE void uninfer(const Here& here, const Reverse& r, ReverseWeights& w, int t) {
  stage<LATENT>(here, r.d_logits + (size_t)t * ROWS * LATENT, LATENT, REVERSE_ROW);
  float sum[EACH];
  product(sum, here, w.logits, w.stream, REVERSE_ROW);
  store_each(r.d_inferred + ((size_t)t * ROWS + here.row) * HIDDEN + (here.cta - HIDDEN_CTA) * TILE + here.col, sum);
}

// what a thread needs of step t for its row and columns. Nothing of it depends on later steps: it is loaded ahead of
// the waits, and worked on behind them, so that the loads take their time while others work.
struct Loaded { bf16 gates[3][EACH], mixed[EACH]; float before[EACH], by_deter[EACH], scale; };
struct Kept { float reset, candidate, gate, update, before, by_deter, mixed; };

DEVICE Loaded load_kept(const Here& here, const Reverse& r, int t) {
  const int column = here.cta * TILE + here.col, block = here.cta / BLOCK_CTAS;
  const size_t at = (size_t)t * ROWS + here.row;
  const bf16* gates = r.gates + at * 3 * DETER + block * 3 * BLOCK + here.cta % BLOCK_CTAS * TILE + here.col;
  Loaded x;
#pragma unroll
  for (int i = 0; i < 3; i++) load_each(x.gates[i], gates + i * BLOCK);
  load_each(x.mixed, r.mixed + at * DETER + column);
  load_each(x.before, t ? r.deter + (at - ROWS) * DETER + column : r.start + here.row * DETER + column);
  load_each(x.by_deter, r.by_deter + at * DETER + column);
  x.scale = r.scale[at];
  return x;
}
DEVICE void work_out(Kept (&kept)[EACH], const Loaded& x, const First& first) {
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    Kept& k = kept[e];
    k.reset = sigmoid(widen(x.gates[0][e]));
    k.gate = widen(x.gates[1][e]);
    k.candidate = tangent(k.reset * k.gate);
    k.update = sigmoid(widen(x.gates[2][e]) - 1.f);
    k.before = first.row ? 0.f : x.before[e];
    k.by_deter = x.by_deter[e];
    k.mixed = widen(x.mixed[e]) * x.scale;
  }
}

// phase `ungate`: total gradient of the state, and from there to the gates. `carried` comes in as what step t + 1 gave
// to the state directly, and goes out as what this step gives past its gates.
DEVICE void ungate(const Here& here, const Reverse& r, ReverseWeights& w, const ReverseVectors& v,
                   const Kept (&kept)[EACH], float (&carried)[EACH], bool last, int t) {
  float grads[2][LANE_HIDDEN] = {}, seen[2][LANE_HIDDEN] = {};  // 0 at the first step: there only the total is wanted
  float scale[LANE_HIDDEN];
  u32 summary[2][LANE_HIDDEN / 2] = {};
  read_row<LANE_HIDDEN>(scale, v.n_seen, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = ((size_t)t * ROWS + here.warp * 2 + i) * HIDDEN;
    if (t) fetch_row<LANE_HIDDEN>(grads[i], r.d_inferred + at, here.lane);
    if (t) fetch_row<LANE_HIDDEN>(seen[i], r.seen + at, here.lane);
    if (!last) fetch_row<LANE_HIDDEN>(summary[i], r.d_summary + at, here.lane);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    bf16* inputs = here.inputs + (here.warp * 2 + i) * REVERSE_ROW;
    tail_back<LANE_HIDDEN>(grads[i], seen[i], scale);
    store_row<LANE_HIDDEN>(inputs, grads[i], here.lane);
    store_row<LANE_HIDDEN>(inputs + HIDDEN, summary[i], here.lane);
  }
  float all[EACH];
  product(all, here, w.project, w.stream, REVERSE_ROW);  // first warps: the posterior's share, others: the summary's
  const size_t at = (size_t)t * ROWS + here.row;
  const int block = here.cta / BLOCK_CTAS;
  float later[EACH], seen_grad[EACH], total[EACH], reset[EACH], gate[EACH], update[EACH];
  sum_warps<TILE / 8>(later, here, here.col, WARPS / 2, WARPS);
  sum_warps<TILE / 8>(seen_grad, here, here.col, 0, WARPS / 2);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const Kept& k = kept[e];
    total[e] = k.by_deter + carried[e] + later[e];
    const float grad = total[e] + seen_grad[e];
    const float inner = grad * k.update * (1.f - k.candidate * k.candidate);
    reset[e] = inner * k.gate * k.reset * (1.f - k.reset);
    gate[e] = inner * k.reset;
    update[e] = grad * (k.candidate - k.before) * k.update * (1.f - k.update);
    carried[e] = grad * (1.f - k.update);
  }
  store_each(r.total_deter + at * DETER + here.cta * TILE + here.col, total);
  bf16* gates = r.d_gates + at * 3 * DETER + block * 3 * BLOCK + here.cta % BLOCK_CTAS * TILE + here.col;
  store_each(gates, reset);
  store_each(gates + BLOCK, gate);
  store_each(gates + 2 * BLOCK, update);
}

// phase `tilt`: from the gates to the normalised outputs of mix
DEVICE void tilt(const Here& here, const Reverse& r, ReverseWeights& w, const Kept (&kept)[EACH],
                 const float (&n_mix)[EACH], int t) {
  const int block = here.cta / BLOCK_CTAS;
  stage<3 * BLOCK>(here, r.d_gates + (size_t)t * ROWS * 3 * DETER + block * 3 * BLOCK, 3 * DETER, REVERSE_ROW);
  float tilted[EACH], lean = 0.f;
  product(tilted, here, w.gates, w.stream, REVERSE_ROW);
  const size_t at = (size_t)t * ROWS + here.row;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const float mixed = kept[e].mixed;
    tilted[e] = rounded(tilted[e] * silu_slope(mixed * n_mix[e]) * n_mix[e]);
    lean = e ? lean + tilted[e] * mixed : tilted[e] * mixed;
  }
  store_each(r.tilted + at * DETER + here.cta * TILE + here.col, tilted);
  lean = lanes_sum<16>(lean);
  if (here.col == 0) r.lean[at * CTAS + here.cta] = lean;
}

// outputs of mix of this CTA's part of the state, rows of this warp
struct MixedRows { u32 words[2][LANE_PART / 2]; float scale[2]; };
DEVICE void fetch_mixed(MixedRows& m, const Here& here, const Reverse& r, int t) {
  const int part = here.cta / TILES_SHARED;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_row<LANE_PART>(m.words[i], r.mixed + at * DETER + part * PART, here.lane);
    m.scale[i] = r.scale[at];
  }
}

// phase `unmix`: through the norm over the whole state and through mix, to summary and latent (in parts) and to the
// state before (this CTA's columns)
DEVICE void unmix(const Here& here, const Reverse& r, ReverseWeights& w, const MixedRows& m, bool first,
                  float (&carried)[EACH], int t) {
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED;
  u32 words[2][LANE_PART / 2];
  float lean[2][LANE_CTAS];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_row<LANE_CTAS>(lean[i], r.lean + at * CTAS, here.lane);
    fetch_row<LANE_PART>(words[i], r.tilted + at * DETER + part * PART, here.lane);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float all = 0.f, grad[LANE_PART], x[LANE_PART];
#pragma unroll
    for (int j = 0; j < LANE_CTAS; j++) all += lean[i][j];
    const float mean = warp_sum(all) / DETER, scale = m.scale[i];
    widen_words<LANE_PART>(grad, words[i]);
    widen_words<LANE_PART>(x, m.words[i]);
#pragma unroll
    for (int j = 0; j < LANE_PART; j++) grad[j] = scale * (grad[j] - x[j] * scale * mean);
    store_row<LANE_PART>(here.inputs + (here.warp * 2 + i) * REVERSE_ROW, grad, here.lane);
  }
  constexpr int TILES = TILE / 8;
  float shared[TILES][4], own[TILES][4];
  block_sync();
  multiply(shared, w.mix_shared, w.stream, here, here.inputs, REVERSE_ROW);
  const bf16* block = here.inputs + (here.cta / BLOCK_CTAS * BLOCK - part * PART);
  multiply(own, w.mix_state, w.stream, here, block, REVERSE_ROW);
  settle();
  keep_sums(here, shared, 0, 2 * TILES);
  keep_sums(here, own, TILES, 2 * TILES);
  block_sync();
  const size_t row = ((size_t)t * PARTS + part) * ROWS + here.row;
  float sum[EACH], back[EACH];
  sum_warps<2 * TILES>(sum, here, here.col);
  sum_warps<2 * TILES>(back, here, TILE + here.col);
  store_each(r.d_shared + row * SHARED + tile * TILE + here.col, sum);
#pragma unroll
  for (int e = 0; e < EACH; e++) carried[e] = first ? 0.f : carried[e] + back[e];
}
