// The way forwards: what is given and found, and the phases of a step.
// Numbers between steps have an index s: s = 0 is the start, s = t + 1 is after step t.
struct Forward {
  // given
  const float* start;          // (B, D) deterministic state
  const bf16* acted;           // (T, B, hidden)
  const bf16* embedded;        // (T, B, hidden)
  const unsigned char* first;  // (T, B)
  const float* noise;          // (T, B, groups)
  // weights as the modules lay them out, in half precision
  const bf16* w_summary;       // cell.deter_in (hidden, D)
  const bf16* w_latent;        // cell.stoch_in (hidden, Z)
  const bf16* w_mix;           // cell.mix (blocks, block + 3 hidden, block)
  const bf16* w_gates;         // cell.gates (blocks, block, 3 block)
  const bf16* w_seen;          // deter_in (hidden, D)
  const bf16* w_logits;        // posterior_out (Z, hidden)
  // biases and scales of norms, in full precision
  const float* b_summary; const float* b_latent; const float* b_mix; const float* b_gates; const float* b_seen;
  const float* b_logits;
  const float* n_summary; const float* n_latent; const float* n_mix; const float* n_seen;
  // found
  float* deter;                // (T, B, D)
  float* stoch;                // (T, B, Z)
  float* params;               // (T, B, groups, classes)
  // between CTAs, and for the way back
  bf16* half;                  // (T + 1, B, D) the state rounded; the start must be there already
  bf16* drawn;                 // (T + 1, B, Z) the latent; the start must be there already
  float* parts;                // (T + 1, PARTS, B, 2 hidden) the joined projection of the state, by parts of the state
  float* summary;              // (T + 1, B, hidden) the state's projection for the next step, without bias
  float* latent;               // (T + 1, B, hidden) the latent's, likewise
  bf16* mixed;                 // (T, B, D) outputs of mix
  float* power;                // (T, B, CTAS) sums of their squares
  float* scale;                // (T, B) one over their root mean square
  bf16* gates;                 // (T, B, blocks, 3 block)
  float* seen;                 // (T, B, hidden) first layer of the posterior
  u32* counters; u32* fault;
  long long steps;
  bf16* packed;                // the weights, where they are streamed
};

constexpr bool KEEPS_MIX = !STREAMED || TILE == 32;  // a thread has the registers for it
struct ForwardWeights {
  Factor<KEEPS_MIX, INPUTS, TILE / 8> mix;
  Factor<!STREAMED, BLOCK, 3 * TILE / 8> gates;
  Factor<!STREAMED, PART, TILE / 8> project;
  Factor<!STREAMED, HIDDEN, TILE / 8> logits;  // only CTAs that infer
  Factor<!STREAMED, LATENT, TILE / 8> embed;   // only CTAs that embed
  Stream<SLOTS_FORWARD> stream;
};
struct ForwardVectors {        // in shared memory, at a multiple of 16 bytes
  float b_summary[HIDDEN], n_summary[HIDDEN], b_latent[HIDDEN], n_latent[HIDDEN], b_seen[HIDDEN], n_seen[HIDDEN];
  float n_mix[BLOCK];
};
constexpr int FORWARD_ROW = FORWARD_WIDTH + SPARE;
constexpr int FORWARD_PRODUCTS = bytes_of_products(FORWARD_WIDTH, 3 * TILE);
constexpr int FORWARD_RING = FORWARD_PRODUCTS + (int)sizeof(ForwardVectors);
constexpr int FORWARD_BYTES = FORWARD_RING + SLOTS_FORWARD * WARPS * CELL * 16;

// whether episodes begin, in a thread's row of the tile and in the two rows that its warp holds. It is read ahead of
// the waits: even this costs a way to the second-level cache.
struct First { bool row, held[2]; };
DEVICE First fetch_first(const Here& here, const unsigned char* first, int t) {
  return {(bool)first[t * ROWS + here.row],
          {(bool)first[t * ROWS + here.warp * 2], (bool)first[t * ROWS + here.warp * 2 + 1]}};
}

// phase `mix`, what does not need the latent: state, summary and action as inputs
DEVICE void mix_early(const Here& here, const Forward& f, const ForwardVectors& v, const First& first, int t) {
  const int block = here.cta / BLOCK_CTAS;
  u32 state[2][LANE_BLOCK / 2], action[2][LANE_HIDDEN / 2];
  float summary[2][LANE_HIDDEN], bias[LANE_HIDDEN], scale[LANE_HIDDEN];
  read_row<LANE_HIDDEN>(bias, v.b_summary, here.lane);
  read_row<LANE_HIDDEN>(scale, v.n_summary, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = here.warp * 2 + i;
    const size_t at = (size_t)t * ROWS + row;
    fetch_row<LANE_BLOCK>(state[i], f.half + at * DETER + block * BLOCK, here.lane);
    fetch_row<LANE_HIDDEN>(action[i], f.acted + at * HIDDEN, here.lane);
    fetch_row<LANE_HIDDEN>(summary[i], f.summary + at * HIDDEN, here.lane);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    bf16* inputs = here.inputs + (here.warp * 2 + i) * FORWARD_ROW;
#pragma unroll
    for (int j = 0; j < LANE_BLOCK / 2; j++) state[i][j] = first.held[i] ? 0u : state[i][j];
#pragma unroll
    for (int j = 0; j < LANE_HIDDEN; j++)
      summary[i][j] = (first.held[i] ? 0.f : summary[i][j]) + bias[j];
    tail<LANE_HIDDEN>(summary[i], scale);
    store_row<LANE_BLOCK>(inputs, state[i], here.lane);
    store_row<LANE_HIDDEN>(inputs + BLOCK, summary[i], here.lane);
    store_row<LANE_HIDDEN>(inputs + BLOCK + 2 * HIDDEN, action[i], here.lane);
  }
}

// phase `mix`: the latent as input, then the product
DEVICE void mix(const Here& here, const Forward& f, ForwardWeights& w, const ForwardVectors& v,
                const float (&bias)[EACH], const First& first, int t) {
  float latent[2][LANE_HIDDEN], shift[LANE_HIDDEN], scale[LANE_HIDDEN];
  read_row<LANE_HIDDEN>(shift, v.b_latent, here.lane);
  read_row<LANE_HIDDEN>(scale, v.n_latent, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_row<LANE_HIDDEN>(latent[i], f.latent + at * HIDDEN, here.lane);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < LANE_HIDDEN; j++)
      latent[i][j] = (first.held[i] ? 0.f : latent[i][j]) + shift[j];
    tail<LANE_HIDDEN>(latent[i], scale);
    bf16* inputs = here.inputs + (here.warp * 2 + i) * FORWARD_ROW;
    store_row<LANE_HIDDEN>(inputs + BLOCK + HIDDEN, latent[i], here.lane);
  }
  float mixed[EACH], power = 0.f;
  product(mixed, here, w.mix, w.stream, FORWARD_ROW);
  const size_t at = (size_t)t * ROWS + here.row;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    mixed[e] = rounded(mixed[e] + bias[e]);
    power = e ? power + mixed[e] * mixed[e] : mixed[e] * mixed[e];
  }
  store_each(f.mixed + at * DETER + here.cta * TILE + here.col, mixed);
  power = lanes_sum<16>(power);
  if (here.col == 0) f.power[at * CTAS + here.cta] = power;
}

// phase `advance`: norm over the whole state, gates of this CTA's columns, and their next state
DEVICE void advance(const Here& here, const Forward& f, ForwardWeights& w, const ForwardVectors& v,
                    const float (&bias)[3][EACH], const First& first, float (&state)[EACH], int t) {
  const int block = here.cta / BLOCK_CTAS, column = here.cta * TILE + here.col;
  u32 words[2][LANE_BLOCK / 2];
  float power[2][LANE_CTAS], weight[LANE_BLOCK];
  read_row<LANE_BLOCK>(weight, v.n_mix, here.lane);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t at = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_row<LANE_BLOCK>(words[i], f.mixed + at * DETER + block * BLOCK, here.lane);
    fetch_row<LANE_CTAS>(power[i], f.power + at * CTAS, here.lane);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float all = 0.f, x[LANE_BLOCK];
#pragma unroll
    for (int j = 0; j < LANE_CTAS; j++) all += power[i][j];
    const float scale = inverse_root(warp_sum(all) / DETER + EPS);
    if (here.cta == 0 && here.lane == 0) f.scale[t * ROWS + here.warp * 2 + i] = scale;
    widen_words<LANE_BLOCK>(x, words[i]);
#pragma unroll
    for (int j = 0; j < LANE_BLOCK; j++) x[j] = silu(x[j] * scale * weight[j]);
    store_row<LANE_BLOCK>(here.inputs + (here.warp * 2 + i) * FORWARD_ROW, x, here.lane);
  }
  float d[3 * TILE / 8][4];
  block_sync();
  multiply(d, w.gates, w.stream, here, here.inputs, FORWARD_ROW);
  settle();
  keep_sums(here, d);
  block_sync();
  const size_t at = (size_t)t * ROWS + here.row;
  float gate[3][EACH];
#pragma unroll
  for (int i = 0; i < 3; i++) {
    sum_warps<3 * TILE / 8>(gate[i], here, i * TILE + here.col);
#pragma unroll
    for (int e = 0; e < EACH; e++) gate[i][e] = rounded(gate[i][e] + bias[i][e]);
    const int own = here.cta % BLOCK_CTAS * TILE + here.col;
    store_each(f.gates + at * 3 * DETER + block * 3 * BLOCK + i * BLOCK + own, gate[i]);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const float before = first.row ? 0.f : state[e];
    const float candidate = tangent(sigmoid(gate[0][e]) * gate[1][e]), update = sigmoid(gate[2][e] - 1.f);
    state[e] = before + update * (candidate - before);
  }
  store_each(f.deter + at * DETER + column, state);
  store_each(f.half + (at + ROWS) * DETER + column, state);
}

// phase `project`: a part of state s times the weights of posterior and next summary, side by side
DEVICE void project(const Here& here, const Forward& f, ForwardWeights& w, int s) {
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED;
  stage<PART>(here, f.half + (size_t)s * ROWS * DETER + part * PART, DETER, FORWARD_ROW);
  float sum[EACH];
  product(sum, here, w.project, w.stream, FORWARD_ROW);
  store_each(f.parts + (((size_t)s * PARTS + part) * ROWS + here.row) * SHARED + tile * TILE + here.col, sum);
}

// this warp's two rows of a joined projection (.., PARTS, B, 2 hidden), added up over parts
DEVICE void gather_parts(float (&x)[2][LANE_HIDDEN], const Here& here, const float* parts, int s, int offset) {
  if constexpr (STREAMED) {  // all at once would be more than there are registers
#pragma unroll
    for (int i = 0; i < PARTS; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float part[LANE_HIDDEN];
        const size_t row = ((size_t)s * PARTS + i) * ROWS + here.warp * 2 + r;
        fetch_row<LANE_HIDDEN>(part, parts + row * SHARED + offset, here.lane);
#pragma unroll
        for (int j = 0; j < LANE_HIDDEN; j++) x[r][j] = i ? x[r][j] + part[j] : part[j];
      }
  } else {
    float part[2][PARTS][LANE_HIDDEN];
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < PARTS; i++) {
        const size_t row = ((size_t)s * PARTS + i) * ROWS + here.warp * 2 + r;
        fetch_row<LANE_HIDDEN>(part[r][i], parts + row * SHARED + offset, here.lane);
      }
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int j = 0; j < LANE_HIDDEN; j++) {
        x[r][j] = part[r][0][j];
#pragma unroll
        for (int i = 1; i < PARTS; i++) x[r][j] += part[r][i][j];
      }
  }
}

// phase `summarise`: the summary of state s
DEVICE void summarise(const Here& here, const Forward& f, int s) {
  float x[2][LANE_HIDDEN];
  gather_parts(x, here, f.parts, s, HIDDEN);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const size_t row = (size_t)s * ROWS + here.warp * 2 + i;
    store_row<LANE_HIDDEN>(f.summary + row * HIDDEN, x[i], here.lane);
  }
}

// phase `infer`, what does not need the state: the observation's share, set out for before the wait
DEVICE void infer_early(float (&observed)[2][LANE_HIDDEN], const Here& here, const Forward& f, int t) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 words[LANE_HIDDEN / 2];
    const size_t row = (size_t)t * ROWS + here.warp * 2 + i;
    fetch_row<LANE_HIDDEN>(words, f.embedded + row * HIDDEN, here.lane);
    widen_words<LANE_HIDDEN>(observed[i], words);
  }
}

// phase `infer`: posterior, its log-probabilities and the draw, for the columns of a tile of the latent
DEVICE void infer(const Here& here, const Forward& f, ForwardWeights& w, const ForwardVectors& v,
                  const float (&bias)[EACH], const float (&observed)[2][LANE_HIDDEN], float noise, int t) {
  float x[2][LANE_HIDDEN], shift[LANE_HIDDEN], scale[LANE_HIDDEN];
  read_row<LANE_HIDDEN>(shift, v.b_seen, here.lane);
  read_row<LANE_HIDDEN>(scale, v.n_seen, here.lane);
  gather_parts(x, here, f.parts, t + 1, 0);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = here.warp * 2 + i;
#pragma unroll
    for (int j = 0; j < LANE_HIDDEN; j++) x[i][j] += shift[j] + observed[i][j];
    if (here.cta == 0)
      store_row<LANE_HIDDEN>(f.seen + ((size_t)t * ROWS + row) * HIDDEN, x[i], here.lane);
    tail<LANE_HIDDEN>(x[i], scale);
    store_row<LANE_HIDDEN>(here.inputs + row * FORWARD_ROW, x[i], here.lane);
  }
  float logit[EACH], power[EACH], param[EACH], prob[EACH], one[EACH];
  product(logit, here, w.logits, w.stream, FORWARD_ROW);
#pragma unroll
  for (int e = 0; e < EACH; e++) logit[e] += bias[e];
  const float most = group_max(logit);
#pragma unroll
  for (int e = 0; e < EACH; e++) power[e] = fine_exp(logit[e] - most);
  const float all = group_sum(power);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    param[e] = fine_log((1.f - UNIMIX) * (power[e] / all) + UNIMIX / CLASSES);
    prob[e] = fine_exp(param[e]);
  }
  draw(one, prob, noise, here.lane);
  const size_t at = ((size_t)t * ROWS + here.row) * LATENT + here.cta * TILE + here.col;
  store_each(f.params + at, param);
  store_each(f.stoch + at, one);
  store_each(f.drawn + at + ROWS * LATENT, one);
}

// phase `embed`: the latent of state s times the weights of the next step
DEVICE void embed(const Here& here, const Forward& f, ForwardWeights& w, int s) {
  stage<LATENT>(here, f.drawn + (size_t)s * ROWS * LATENT, LATENT, FORWARD_ROW);
  float sum[EACH];
  product(sum, here, w.embed, w.stream, FORWARD_ROW);
  store_each(f.latent + ((size_t)s * ROWS + here.row) * HIDDEN + (here.cta - HIDDEN_CTA) * TILE + here.col, sum);
}
