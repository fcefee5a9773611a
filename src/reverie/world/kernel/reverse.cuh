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
};

struct ReverseWeights {
  Weights<HIDDEN, 2> latent;   // only CTAs that work on latents
  Weights<LATENT, 2> logits;   // only CTAs that work on the posterior's hidden layer
  Weights<SHARED, 2> project;
  Weights<3 * BLOCK, 2> gates;
  Weights<PART, 2> mix_shared;
  Weights<BLOCK, 2> mix_state;
};
struct ReverseVectors {
  float b_summary[HIDDEN], n_summary[HIDDEN], b_latent[HIDDEN], n_latent[HIDDEN], n_seen[HIDDEN];
};
constexpr int REVERSE_ROW = REVERSE_WIDTH + SPARE;
constexpr int REVERSE_BYTES = ROWS * REVERSE_ROW * 2 + WARPS * ROWS * (32 + SPARE) * 4 + (int)sizeof(ReverseVectors);

// gradients of the two rows that step t + 1 made of state t, before their norm; 0 where an episode began between both
DEVICE void back_to_projection(float (&grad)[2][LANE_HIDDEN], const Here& here, const Reverse& r,
                               const float* projected, const float* biases, const float* scales, const First& next,
                               int t, int offset) {
  float x[2][LANE_HIDDEN], bias[LANE_HIDDEN], scale[LANE_HIDDEN];
  read_vector<LANE_HIDDEN>(bias, biases, here.lane);
  read_vector<LANE_HIDDEN>(scale, scales, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t row = (size_t)(t + 1) * ROWS + here.warp * 2 + i;
    fetch_floats<LANE_HIDDEN>(x[i], projected + row * HIDDEN + here.lane * LANE_HIDDEN);
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

// phase `undraw`: total gradient of the latent, and from there to the logits
DEVICE void undraw(const Here& here, const Reverse& r, const ReverseWeights& w, const ReverseVectors& v, float total,
                   float by_params, float param, const First& next, bool last, int t) {
  if (!last) {
    float grad[2][LANE_HIDDEN];
    back_to_projection(grad, here, r, r.latent, v.b_latent, v.n_latent, next, t, HIDDEN);
#pragma unroll
    for (int i = 0; i < 2; i++)
      store_halves<LANE_HIDDEN>(here.inputs + (here.warp * 2 + i) * REVERSE_ROW + here.lane * LANE_HIDDEN, grad[i]);
    total += product(here, w.latent, REVERSE_ROW);
  }
  const size_t at = ((size_t)t * ROWS + here.row) * LATENT + here.cta * TILE + here.col;
  r.total_stoch[at] = total;
  const float prob = fine_exp(param), soft = (prob - UNIMIX / CLASSES) * (1.f / (1.f - UNIMIX));
  const float grad = (1.f - UNIMIX) * (by_params / prob + total);
  r.d_logits[at] = narrow(soft * (grad - lanes_sum<CLASSES>(soft * grad)));
}

// phase `unsummarise`
DEVICE void unsummarise(const Here& here, const Reverse& r, const ReverseVectors& v, const First& next, int t) {
  float grad[2][LANE_HIDDEN];
  back_to_projection(grad, here, r, r.summary, v.b_summary, v.n_summary, next, t, 0);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t row = (size_t)t * ROWS + here.warp * 2 + i;
    store_halves<LANE_HIDDEN>(r.d_summary + row * HIDDEN + here.lane * LANE_HIDDEN, grad[i]);
  }
}

// phase `uninfer`: from logits to the posterior's hidden layer
DEVICE void uninfer(const Here& here, const Reverse& r, const ReverseWeights& w, int t) {
  stage<LATENT>(here, r.d_logits + (size_t)t * ROWS * LATENT, LATENT, REVERSE_ROW);
  const float sum = product(here, w.logits, REVERSE_ROW);
  r.d_inferred[((size_t)t * ROWS + here.row) * HIDDEN + (here.cta - HIDDEN_CTA) * TILE + here.col] = sum;
}

// what a thread needs of step t for its row and column. Nothing of it depends on later steps: it is loaded ahead of the
// waits, and worked on behind them, so that the loads take their time while others work.
struct Loaded { bf16 gates[3], mixed; float before, by_deter, scale; };
struct Kept { float reset, candidate, gate, update, before, by_deter, mixed; };

DEVICE Loaded load_kept(const Here& here, const Reverse& r, int t) {
  const int column = here.cta * TILE + here.col, block = here.cta / BLOCK_CTAS;
  const size_t at = (size_t)t * ROWS + here.row;
  const bf16* gates = r.gates + at * 3 * DETER + block * 3 * BLOCK + here.cta % BLOCK_CTAS * TILE + here.col;
  Loaded x;
#pragma unroll
  for (int i = 0; i < 3; i++) x.gates[i] = gates[i * BLOCK];
  x.mixed = r.mixed[at * DETER + column];
  x.before = t ? r.deter[(at - ROWS) * DETER + column] : r.start[here.row * DETER + column];
  x.by_deter = r.by_deter[at * DETER + column];
  x.scale = r.scale[at];
  return x;
}
DEVICE Kept work_out(const Loaded& x, const First& first) {
  Kept k;
  k.reset = sigmoid(widen(x.gates[0]));
  k.gate = widen(x.gates[1]);
  k.candidate = tangent(k.reset * k.gate);
  k.update = sigmoid(widen(x.gates[2]) - 1.f);
  k.before = first.row ? 0.f : x.before;
  k.by_deter = x.by_deter;
  k.mixed = widen(x.mixed) * x.scale;
  return k;
}

// phase `ungate`: total gradient of the state, and from there to the gates. `carried` comes in as what step t + 1 gave
// to the state directly, and goes out as what this step gives past its gates.
DEVICE void ungate(const Here& here, const Reverse& r, const ReverseWeights& w, const ReverseVectors& v, const Kept& k,
                   float& carried, bool last, int t) {
  float grads[2][LANE_HIDDEN] = {}, seen[2][LANE_HIDDEN] = {};  // 0 at the first step: there only the total is wanted
  float scale[LANE_HIDDEN];
  u32 summary[2][LANE_HIDDEN / 2] = {};
  read_vector<LANE_HIDDEN>(scale, v.n_seen, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = ((size_t)t * ROWS + here.warp * 2 + i) * HIDDEN + here.lane * LANE_HIDDEN;
    if (t) fetch_floats<LANE_HIDDEN>(grads[i], r.d_inferred + at);
    if (t) fetch_floats<LANE_HIDDEN>(seen[i], r.seen + at);
    if (!last) fetch_words<LANE_HIDDEN / 2>(summary[i], r.d_summary + at);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    bf16* inputs = here.inputs + (here.warp * 2 + i) * REVERSE_ROW + here.lane * LANE_HIDDEN;
    tail_back<LANE_HIDDEN>(grads[i], seen[i], scale);
    store_halves<LANE_HIDDEN>(inputs, grads[i]);
    store_words<LANE_HIDDEN / 2>(inputs + HIDDEN, summary[i]);
  }
  product(here, w.project, REVERSE_ROW);  // its first warps hold the posterior's share, the others the summary's
  const float total = k.by_deter + carried + sum_warps<2>(here, here.col, WARPS / 2, WARPS);
  const float grad = total + sum_warps<2>(here, here.col, 0, WARPS / 2);
  const size_t at = (size_t)t * ROWS + here.row;
  r.total_deter[at * DETER + here.cta * TILE + here.col] = total;
  const float inner = grad * k.update * (1.f - k.candidate * k.candidate);
  const int block = here.cta / BLOCK_CTAS;
  bf16* gates = r.d_gates + at * 3 * DETER + block * 3 * BLOCK + here.cta % BLOCK_CTAS * TILE + here.col;
  gates[0] = narrow(inner * k.gate * k.reset * (1.f - k.reset));
  gates[BLOCK] = narrow(inner * k.reset);
  gates[2 * BLOCK] = narrow(grad * (k.candidate - k.before) * k.update * (1.f - k.update));
  carried = grad * (1.f - k.update);
}

// phase `tilt`: from the gates to the normalised outputs of mix
DEVICE void tilt(const Here& here, const Reverse& r, const ReverseWeights& w, const Kept& k, float n_mix, int t) {
  const int block = here.cta / BLOCK_CTAS;
  stage<3 * BLOCK>(here, r.d_gates + (size_t)t * ROWS * 3 * DETER + block * 3 * BLOCK, 3 * DETER, REVERSE_ROW);
  const float grad = product(here, w.gates, REVERSE_ROW) * silu_slope(k.mixed * n_mix) * n_mix;
  const bf16 tilted = narrow(grad);
  const size_t at = (size_t)t * ROWS + here.row;
  r.tilted[at * DETER + here.cta * TILE + here.col] = tilted;
  const float lean = lanes_sum<16>(widen(tilted) * k.mixed);
  if (here.col == 0) r.lean[at * CTAS + here.cta] = lean;
}

// outputs of mix of this CTA's part of the state, rows of this warp
struct MixedRows { u32 words[2][LANE_PART / 2]; float scale[2]; };
DEVICE void fetch_mixed(MixedRows& m, const Here& here, const Reverse& r, int t) {
  const int part = here.cta / TILES_SHARED;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_words<LANE_PART / 2>(m.words[i], r.mixed + at * DETER + part * PART + here.lane * LANE_PART);
    m.scale[i] = r.scale[at];
  }
}

// phase `unmix`: through the norm over the whole state and through mix, to summary and latent (in parts) and to the
// state before (this CTA's columns)
DEVICE void unmix(const Here& here, const Reverse& r, const ReverseWeights& w, const MixedRows& m, bool first,
                  float& carried, int t) {
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED;
  u32 words[2][LANE_PART / 2];
  float lean[2][LANE_CTAS];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_floats<LANE_CTAS>(lean[i], r.lean + at * CTAS + here.lane * LANE_CTAS);
    fetch_words<LANE_PART / 2>(words[i], r.tilted + at * DETER + part * PART + here.lane * LANE_PART);
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
    store_halves<LANE_PART>(here.inputs + (here.warp * 2 + i) * REVERSE_ROW + here.lane * LANE_PART, grad);
  }
  float shared[2][4], own[2][4];
  block_sync();
  multiply(shared, w.mix_shared, here, here.inputs, REVERSE_ROW);
  multiply(own, w.mix_state, here, here.inputs + (here.cta / BLOCK_CTAS * BLOCK - part * PART), REVERSE_ROW);
  keep_sums(here, shared, 0, 4);
  keep_sums(here, own, 2, 4);
  block_sync();
  const size_t row = ((size_t)t * PARTS + part) * ROWS + here.row;
  r.d_shared[row * SHARED + tile * TILE + here.col] = sum_warps<4>(here, here.col);
  carried += sum_warps<4>(here, TILE + here.col);
  carried = first ? 0.f : carried;
}
