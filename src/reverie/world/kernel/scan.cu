// The filter of a recurrent state-space model over a window, as two kernels that stay on the GPU for the whole window.
//
// `forward_scan` runs the steps forwards, `reverse_scan` carries the gradients of the states backwards. The recurrent
// weights are spread over DETER / COLUMNS thread blocks ("CTAs"). With 16 columns each all of them lie in registers;
// with more, some or none do, and the others pass through shared memory at every step (stream.cuh), in an order that
// `forward_pack` and `reverse_pack` bring them into before. A step is a handful of phases, and a CTA that needs what
// others made waits until their counter says that they are done. The tests have the same in PyTorch, phase by phase and
// under the same names.
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
#include "stream.cuh"
#include "forward.cuh"
#include "reverse.cuh"
#include "weights.cuh"

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
  ForwardVectors& v = *(ForwardVectors*)(shared_memory() + FORWARD_PRODUCTS);
  const int block = here.cta / BLOCK_CTAS, column = here.cta % BLOCK_CTAS * TILE + here.col;
  const int half = here.cta % TILES_SHARED < TILES_SHARED / 2 ? 0 : 1;  // of the projection: posterior or summary
  const bool infers = on_latents(here), embeds = on_hidden(here);
  const int steps = (int)f.steps;
  ForwardWeights w;
  load_forward(w, here, f);
  keep_vectors(v, here, f);
  float b_mix[EACH], b_gates[3][EACH], b_logits[EACH], state[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    b_mix[e] = f.b_mix[here.cta * TILE + here.col + e];
#pragma unroll
    for (int i = 0; i < 3; i++) b_gates[i][e] = f.b_gates[block * 3 * BLOCK + i * BLOCK + column + e];
    b_logits[e] = f.b_logits[here.cta % LATENT_CTAS * TILE + here.col + e];
    state[e] = f.start[here.row * DETER + here.cta * TILE + here.col + e];
  }
  block_sync();

  project(here, f, w, 0);
  arrive(f.counters, PROJECTED + half);
  if (here.cta == SUMMARY_CTA) {
    wait_for(here, f.counters, PROJECTED + 1, CTAS / 2, -1);
    summarise(here, f, 0);
    arrive(f.counters, SUMMARISED);
  }
  if (infers) pass_over(w.logits, w.stream);
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
  end_stream(w.stream);
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
  ReverseVectors& v = *(ReverseVectors*)(shared_memory() + REVERSE_PRODUCTS);
  const int block = here.cta / BLOCK_CTAS;
  const bool draws = on_latents(here), infers = on_hidden(here);
  const int steps = (int)r.steps;
  ReverseWeights w;
  load_reverse(w, here, r);
  keep_vectors(v, here, r);
  float n_mix[EACH], carried[EACH] = {};
#pragma unroll
  for (int e = 0; e < EACH; e++) n_mix[e] = r.n_mix[here.cta * TILE + here.col + e];
  First next = {};  // of step t + 1
  block_sync();

  for (int t = steps - 1; t >= 0; t--) {
    const bool last = t == steps - 1;
    const u32 done = steps - 1 - t;  // steps done before this one
    const First first = fetch_first(here, r.first, t);
    const Loaded loaded = load_kept(here, r, t);
    if (draws) {
      const Drawn drawn = load_drawn(here, r, t);
      wait_for(here, r.counters, UNMIXED, done * CTAS, t);
      undraw(here, r, w, v, drawn, next, last, t);
      arrive(r.counters, UNDRAWN);
    }
    if (here.cta == SUMMARY_CTA && !last) {
      wait_for(here, r.counters, UNMIXED, done * CTAS, t);
      unsummarise(here, r, v, next, t);
      arrive(r.counters, UNSUMMARISED);
    }
    if (infers && !t) pass_over(w.logits, w.stream);
    if (infers && t) {
      wait_for(here, r.counters, UNDRAWN, (done + 1) * LATENT_CTAS, t);
      uninfer(here, r, w, t);
      arrive(r.counters, UNINFERRED);
    }
    wait_for(here, r.counters, UNSUMMARISED, done, t);
    if (t) wait_for(here, r.counters, UNINFERRED, (done + 1) * HIDDEN_CTAS, t);
    Kept k[EACH];
    work_out(k, loaded, first);
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
  end_stream(w.stream);
}

static_assert(SHARED_FORWARD == FORWARD_BYTES && SHARED_REVERSE == REVERSE_BYTES, "the launcher counts otherwise");
static_assert(!STREAMED || ALL_CELLS_FORWARD == FORWARD_CELLS, "the launcher counts cells otherwise");
static_assert(!STREAMED || ALL_CELLS_REVERSE == REVERSE_CELLS, "the launcher counts cells otherwise");
static_assert(NUM_COUNTERS >= FORWARD_COUNTERS && NUM_COUNTERS >= REVERSE_COUNTERS, "too few counters");
