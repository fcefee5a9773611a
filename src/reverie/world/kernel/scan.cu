// The filter of a recurrent state-space model over a window, as two kernels that stay on the GPU for the whole window.
//
// `forward_scan` runs the steps forwards, `reverse_scan` carries the gradients of the states backwards. All recurrent
// weights lie in registers, spread over DETER / 16 thread blocks ("CTAs"); a step is a handful of phases, and a CTA
// that needs what others made waits until their counter says that they are done. The tests have the same in PyTorch,
// phase by phase and under the same names.
//
// Rules that everything here rests on:
// * All CTAs are on the GPU at once (one per multiprocessor); whoever launches must see to that.
// * Everything that travels between CTAs has a place of its own for every step, so it is written once in a launch and
//   nothing can be overwritten before it was read.
// * A writer's threads meet at a block barrier, then its thread 0 adds to the counter with release. A reader's thread 0
//   polls with acquire, then its threads meet at a block barrier. Loads of such values go past the first-level cache,
//   which is not coherent, and are volatile, so that no compiler moves them before the wait.
// * Counters are zero at launch (a memset on the same stream).
//
// No header of CUDA is needed: NVRTC alone compiles it. With EMULATED it is C++ for the tests, which play the GPU.

#ifndef EMULATED
#include "gpu.cuh"
#endif
#include "shapes.cuh"
#include "lanes.cuh"
#include "products.cuh"
#include "forward.cuh"
#include "reverse.cuh"

DEVICE void load_forward(ForwardWeights& w, const Here& here, const Forward& f) {
  const int block = here.cta / BLOCK_CTAS, column = here.cta % BLOCK_CTAS * TILE;
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED * TILE;
  const bf16* w_mix = f.w_mix + (size_t)block * INPUTS * BLOCK + column;
  load_weights(w.mix, here, [=](int k, int n) { return pair_across(w_mix, BLOCK, k, n); });
  const bf16* w_gates = f.w_gates + (size_t)block * BLOCK * 3 * BLOCK + column;
  load_weights(w.gates, here,
               [=](int k, int n) { return pair_across(w_gates, 3 * BLOCK, k, n / TILE * BLOCK + n % TILE); });
  const bf16* w_half = tile < HIDDEN ? f.w_seen + (size_t)tile * DETER : f.w_summary + (size_t)(tile - HIDDEN) * DETER;
  const bf16* w_shared = w_half + part * PART;
  load_weights(w.project, here, [=](int k, int n) { return pair_along(w_shared, DETER, k, n); });
  // both are loaded by all, of some CTA's weights, lest registers be set in branches; who needs none loses nothing
  const bf16* w_logits = f.w_logits + (size_t)(here.cta % LATENT_CTAS) * TILE * HIDDEN;
  load_weights(w.logits, here, [=](int k, int n) { return pair_along(w_logits, HIDDEN, k, n); });
  const bf16* w_latent = f.w_latent + (size_t)(here.cta % HIDDEN_CTAS) * TILE * LATENT;
  load_weights(w.embed, here, [=](int k, int n) { return pair_along(w_latent, LATENT, k, n); });
}

DEVICE void keep_vectors(ForwardVectors& v, const Here& here, const Forward& f) {
  keep_vector(here, v.b_summary, f.b_summary, HIDDEN);
  keep_vector(here, v.n_summary, f.n_summary, HIDDEN);
  keep_vector(here, v.b_latent, f.b_latent, HIDDEN);
  keep_vector(here, v.n_latent, f.n_latent, HIDDEN);
  keep_vector(here, v.b_seen, f.b_seen, HIDDEN);
  keep_vector(here, v.n_seen, f.n_seen, HIDDEN);
  keep_vector(here, v.n_mix, f.n_mix + here.cta / BLOCK_CTAS * BLOCK, BLOCK);
}

KERNEL forward_scan(const Forward f) {
  Here here = make_here(FORWARD_WIDTH, f.fault);
  ForwardVectors& v = *(ForwardVectors*)(here.sums + WARPS * ROWS * (48 + SPARE));
  const int block = here.cta / BLOCK_CTAS, column = here.cta % BLOCK_CTAS * TILE + here.col;
  const int half = here.cta % TILES_SHARED < TILES_SHARED / 2 ? 0 : 1;  // of the projection: posterior or summary
  const bool infers = here.cta < LATENT_CTAS, embeds = here.cta >= HIDDEN_CTA && here.cta < HIDDEN_CTA + HIDDEN_CTAS;
  const int steps = (int)f.steps;
  ForwardWeights w;
  load_forward(w, here, f);
  keep_vectors(v, here, f);
  const float b_mix = f.b_mix[here.cta * TILE + here.col];
  const float b_gates[3] = {f.b_gates[block * 3 * BLOCK + column], f.b_gates[block * 3 * BLOCK + BLOCK + column],
                            f.b_gates[block * 3 * BLOCK + 2 * BLOCK + column]};
  const float b_logits = f.b_logits[here.cta % LATENT_CTAS * TILE + here.col];
  float state = f.start[here.row * DETER + here.cta * TILE + here.col];
  block_sync();

  project(here, f, w, 0);
  arrive(f.counters, PROJECTED + half);
  if (here.cta == SUMMARY_CTA) {
    wait_for(here, f.counters, PROJECTED + 1, CTAS / 2, -1);
    summarise(here, f, 0);
    arrive(f.counters, SUMMARISED);
  }
  if (embeds) {
    embed(here, f, w, 0);
    arrive(f.counters, EMBEDDED);
  }
  for (int t = 0; t < steps; t++) {
    const First first = fetch_first(here, f.first, t);
    wait_for(here, f.counters, SUMMARISED, t + 1, t);
    mix_early(here, f, v, first, t);
    wait_for(here, f.counters, EMBEDDED, (t + 1) * HIDDEN_CTAS, t);
    mix(here, f, w, v, b_mix, first, t);
    arrive(f.counters, MIXED);
    wait_for(here, f.counters, MIXED, (t + 1) * CTAS, t);
    advance(here, f, w, v, b_gates, first, state, t);
    arrive(f.counters, ADVANCED + here.cta / PART_CTAS);
    wait_for(here, f.counters, ADVANCED + here.cta / TILES_SHARED, (t + 1) * PART_CTAS, t);
    project(here, f, w, t + 1);
    arrive(f.counters, PROJECTED + half);
    if (infers) {
      float observed[2][LANE_HIDDEN];
      infer_early(observed, here, f, t);
      const int group = (here.cta * TILE + here.col) / CLASSES;
      const float noise = fetch_float(f.noise + ((size_t)t * ROWS + here.row) * GROUPS + group);
      wait_for(here, f.counters, PROJECTED, (t + 2) * (CTAS / 2), t);
      infer(here, f, w, v, b_logits, observed, noise, t);
      arrive(f.counters, INFERRED);
    }
    if (t + 1 < steps) {
      if (here.cta == SUMMARY_CTA) {
        wait_for(here, f.counters, PROJECTED + 1, (t + 2) * (CTAS / 2), t);
        summarise(here, f, t + 1);
        arrive(f.counters, SUMMARISED);
      }
      if (embeds) {
        wait_for(here, f.counters, INFERRED, (t + 1) * LATENT_CTAS, t);
        embed(here, f, w, t + 1);
        arrive(f.counters, EMBEDDED);
      }
    }
  }
}

DEVICE void load_reverse(ReverseWeights& w, const Here& here, const Reverse& r) {
  const int block = here.cta / BLOCK_CTAS, column = here.cta % BLOCK_CTAS * TILE;
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED * TILE;
  const bf16* w_latent = r.w_latent + here.cta % LATENT_CTAS * TILE;
  load_weights(w.latent, here, [=](int k, int n) { return pair_across(w_latent, LATENT, k, n); });
  const bf16* w_logits = r.w_logits + here.cta % HIDDEN_CTAS * TILE;
  load_weights(w.logits, here, [=](int k, int n) { return pair_across(w_logits, HIDDEN, k, n); });
  const bf16* w_seen = r.w_seen + here.cta * TILE;
  const bf16* w_summary = r.w_summary + here.cta * TILE;
  load_weights(w.project, here, [=](int k, int n) {
    return k < HIDDEN ? pair_across(w_seen, DETER, k, n) : pair_across(w_summary, DETER, k - HIDDEN, n);
  });
  const bf16* w_gates = r.w_gates + ((size_t)block * BLOCK + column) * 3 * BLOCK;
  load_weights(w.gates, here, [=](int k, int n) { return pair_along(w_gates, 3 * BLOCK, k, n); });
  const bf16* w_shared = r.w_mix + ((size_t)part * (PART / BLOCK) * INPUTS + BLOCK + tile) * BLOCK;
  load_weights(w.mix_shared, here, [=](int k, int n) {
    return pair_along(w_shared + (size_t)(k / BLOCK) * INPUTS * BLOCK, BLOCK, k % BLOCK, n);
  });
  const bf16* w_state = r.w_mix + ((size_t)block * INPUTS + column) * BLOCK;
  load_weights(w.mix_state, here, [=](int k, int n) { return pair_along(w_state, BLOCK, k, n); });
}

DEVICE void keep_vectors(ReverseVectors& v, const Here& here, const Reverse& r) {
  keep_vector(here, v.b_summary, r.b_summary, HIDDEN);
  keep_vector(here, v.n_summary, r.n_summary, HIDDEN);
  keep_vector(here, v.b_latent, r.b_latent, HIDDEN);
  keep_vector(here, v.n_latent, r.n_latent, HIDDEN);
  keep_vector(here, v.n_seen, r.n_seen, HIDDEN);
}

KERNEL reverse_scan(const Reverse r) {
  Here here = make_here(REVERSE_WIDTH, r.fault);
  ReverseVectors& v = *(ReverseVectors*)(here.sums + WARPS * ROWS * (32 + SPARE));
  const int block = here.cta / BLOCK_CTAS;
  const bool draws = here.cta < LATENT_CTAS, infers = here.cta >= HIDDEN_CTA && here.cta < HIDDEN_CTA + HIDDEN_CTAS;
  const int steps = (int)r.steps;
  ReverseWeights w;
  load_reverse(w, here, r);
  keep_vectors(v, here, r);
  const float n_mix = r.n_mix[here.cta * TILE + here.col];
  float carried = 0.f;
  First next = {};  // of step t + 1
  block_sync();

  for (int t = steps - 1; t >= 0; t--) {
    const bool last = t == steps - 1;
    const u32 done = steps - 1 - t;  // steps done before this one
    const First first = fetch_first(here, r.first, t);
    const Loaded loaded = load_kept(here, r, t);
    if (draws) {
      const size_t at = ((size_t)t * ROWS + here.row) * LATENT + here.cta * TILE + here.col;
      const float by_stoch = r.by_stoch[at], by_params = r.by_params[at], param = r.params[at];
      wait_for(here, r.counters, UNMIXED, done * CTAS, t);
      undraw(here, r, w, v, by_stoch, by_params, param, next, last, t);
      arrive(r.counters, UNDRAWN);
    }
    if (here.cta == SUMMARY_CTA && !last) {
      wait_for(here, r.counters, UNMIXED, done * CTAS, t);
      unsummarise(here, r, v, next, t);
      arrive(r.counters, UNSUMMARISED);
    }
    if (infers && t) {
      wait_for(here, r.counters, UNDRAWN, (done + 1) * LATENT_CTAS, t);
      uninfer(here, r, w, t);
      arrive(r.counters, UNINFERRED);
    }
    wait_for(here, r.counters, UNSUMMARISED, done, t);
    if (t) wait_for(here, r.counters, UNINFERRED, (done + 1) * HIDDEN_CTAS, t);
    const Kept k = work_out(loaded, first);
    ungate(here, r, w, v, k, carried, last, t);
    if (!t) break;  // no gradient goes to the start
    arrive(r.counters, UNGATED + block);
    wait_for(here, r.counters, UNGATED + block, (done + 1) * BLOCK_CTAS, t);
    tilt(here, r, w, k, n_mix, t);
    arrive(r.counters, TILTED);
    MixedRows m;
    fetch_mixed(m, here, r, t);
    wait_for(here, r.counters, TILTED, (done + 1) * CTAS, t);
    unmix(here, r, w, m, first.row, carried, t);
    arrive(r.counters, UNMIXED);
    next = first;
  }
}

static_assert(SHARED_FORWARD == FORWARD_BYTES && SHARED_REVERSE == REVERSE_BYTES, "the launcher counts otherwise");
static_assert(NUM_COUNTERS >= FORWARD_COUNTERS && NUM_COUNTERS >= REVERSE_COUNTERS, "too few counters");
