// Which weights a CTA's products have: functions of input and column, as `load_weights` takes them. Of `logits` and
// `embed` every CTA is given some CTA's, needed or not.
DEVICE auto mix_weights(const Here& here, const Forward& f) {
  const bf16* w = f.w_mix + (size_t)(here.cta / BLOCK_CTAS) * INPUTS * BLOCK + here.cta % BLOCK_CTAS * TILE;
  return [=](int k, int n) { return pair_across(w, BLOCK, k, n); };
}
DEVICE auto gates_weights(const Here& here, const Forward& f) {
  const bf16* w = f.w_gates + (size_t)(here.cta / BLOCK_CTAS) * BLOCK * 3 * BLOCK + here.cta % BLOCK_CTAS * TILE;
  return [=](int k, int n) { return pair_across(w, 3 * BLOCK, k, n / TILE * BLOCK + n % TILE); };
}
DEVICE auto project_weights(const Here& here, const Forward& f) {
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED * TILE;
  const bf16* half = tile < HIDDEN ? f.w_seen + (size_t)tile * DETER : f.w_summary + (size_t)(tile - HIDDEN) * DETER;
  const bf16* w = half + part * PART;
  return [=](int k, int n) { return pair_along(w, DETER, k, n); };
}
DEVICE auto logits_weights(const Here& here, const Forward& f) {
  const bf16* w = f.w_logits + (size_t)(here.cta % LATENT_CTAS) * TILE * HIDDEN;
  return [=](int k, int n) { return pair_along(w, HIDDEN, k, n); };
}
DEVICE auto embed_weights(const Here& here, const Forward& f) {
  const bf16* w = f.w_latent + (size_t)(here.cta % HIDDEN_CTAS) * TILE * LATENT;
  return [=](int k, int n) { return pair_along(w, LATENT, k, n); };
}
DEVICE bool on_latents(const Here& here) { return here.cta < LATENT_CTAS; }
DEVICE bool on_hidden(const Here& here) { return here.cta >= HIDDEN_CTA && here.cta < HIDDEN_CTA + HIDDEN_CTAS; }

// cells of a warp, in this order: those that pass at every step, of which those for latents or hidden layers are not in
// all CTAs, then those that are kept
constexpr int ALL_HIDDEN = Cells<HIDDEN, TILE>::ALL, ALL_LATENT = Cells<LATENT, TILE>::ALL;
constexpr int ALL_MIX = Cells<INPUTS, TILE>::ALL, ALL_GATES = Cells<BLOCK, 3 * TILE>::ALL;
static_assert(!STREAMED || ALL_MIX + ALL_GATES > AHEAD, "no step may be shorter than what is called ahead");
constexpr int FORWARD_CELLS = Cells<PART, TILE>::ALL + larger(ALL_HIDDEN, ALL_LATENT) + ALL_MIX + ALL_GATES;

#if COLUMNS > 16
KERNEL forward_pack(const Forward f) {
  Here here = make_here(0, f.fault);
  here.cta = block_index() / SPLIT;
  Packer packer = make_packer(here, f.packed, FORWARD_CELLS);
  pack_weights<PART, TILE>(packer, here, project_weights(here, f));
  if (on_latents(here)) pack_weights<HIDDEN, TILE>(packer, here, logits_weights(here, f));
  if (on_hidden(here)) pack_weights<LATENT, TILE>(packer, here, embed_weights(here, f));
  if (!KEEPS_MIX) pack_weights<INPUTS, TILE>(packer, here, mix_weights(here, f));
  pack_weights<BLOCK, 3 * TILE>(packer, here, gates_weights(here, f));
  if (KEEPS_MIX) pack_weights<INPUTS, TILE>(packer, here, mix_weights(here, f));
}
#endif

DEVICE void load_forward(ForwardWeights& w, const Here& here, const Forward& f) {
#if COLUMNS > 16
  const Bits128* packed = (const Bits128*)f.packed + ((size_t)here.cta * WARPS + here.warp) * FORWARD_CELLS * CELL;
  const int cells = Cells<PART, TILE>::ALL + (on_latents(here) ? ALL_HIDDEN : on_hidden(here) ? ALL_LATENT : 0) +
                    (KEEPS_MIX ? 0 : ALL_MIX) + ALL_GATES;
  start_stream(w.stream, here, packed, shared_memory() + FORWARD_RING, cells);
  load_packed(w.mix, packed + (size_t)cells * CELL, here);
#else
  load_weights(w.mix, here, mix_weights(here, f));
  load_weights(w.gates, here, gates_weights(here, f));
  load_weights(w.project, here, project_weights(here, f));
  // both are loaded by all, lest registers be set in branches; who needs none loses nothing
  load_weights(w.logits, here, logits_weights(here, f));
  load_weights(w.embed, here, embed_weights(here, f));
#endif
}

// The same for the way backwards.
DEVICE auto latent_weights(const Here& here, const Reverse& r) {
  const bf16* w = r.w_latent + here.cta % LATENT_CTAS * TILE;
  return [=](int k, int n) { return pair_across(w, LATENT, k, n); };
}
DEVICE auto logits_weights(const Here& here, const Reverse& r) {
  const bf16* w = r.w_logits + here.cta % HIDDEN_CTAS * TILE;
  return [=](int k, int n) { return pair_across(w, HIDDEN, k, n); };
}
DEVICE auto project_weights(const Here& here, const Reverse& r) {
  const bf16 *w_seen = r.w_seen + here.cta * TILE, *w_summary = r.w_summary + here.cta * TILE;
  return [=](int k, int n) {
    return k < HIDDEN ? pair_across(w_seen, DETER, k, n) : pair_across(w_summary, DETER, k - HIDDEN, n);
  };
}
DEVICE auto gates_weights(const Here& here, const Reverse& r) {
  const int block = here.cta / BLOCK_CTAS, column = here.cta % BLOCK_CTAS * TILE;
  const bf16* w = r.w_gates + ((size_t)block * BLOCK + column) * 3 * BLOCK;
  return [=](int k, int n) { return pair_along(w, 3 * BLOCK, k, n); };
}
DEVICE auto shared_weights(const Here& here, const Reverse& r) {
  const int part = here.cta / TILES_SHARED, tile = here.cta % TILES_SHARED * TILE;
  const bf16* w = r.w_mix + ((size_t)part * (PART / BLOCK) * INPUTS + BLOCK + tile) * BLOCK;
  return [=](int k, int n) { return pair_along(w + (size_t)(k / BLOCK) * INPUTS * BLOCK, BLOCK, k % BLOCK, n); };
}
DEVICE auto state_weights(const Here& here, const Reverse& r) {
  const int block = here.cta / BLOCK_CTAS, column = here.cta % BLOCK_CTAS * TILE;
  const bf16* w = r.w_mix + ((size_t)block * INPUTS + column) * BLOCK;
  return [=](int k, int n) { return pair_along(w, BLOCK, k, n); };
}

constexpr int ALL_UNGATED = Cells<SHARED, TILE>::ALL, ALL_TILTED = Cells<3 * BLOCK, TILE>::ALL;
constexpr int ALL_UNMIXED = Cells<PART, TILE>::ALL + Cells<BLOCK, TILE>::ALL;
static_assert(!STREAMED || ALL_UNGATED + ALL_TILTED + ALL_UNMIXED > AHEAD, "nor backwards");
constexpr int REVERSE_CELLS = larger(ALL_HIDDEN, ALL_LATENT) + ALL_UNGATED + ALL_TILTED + ALL_UNMIXED;

#if COLUMNS > 16
KERNEL reverse_pack(const Reverse r) {
  Here here = make_here(0, r.fault);
  here.cta = block_index() / SPLIT;
  Packer packer = make_packer(here, r.packed, REVERSE_CELLS);
  if (on_latents(here)) pack_weights<HIDDEN, TILE>(packer, here, latent_weights(here, r));
  if (on_hidden(here)) pack_weights<LATENT, TILE>(packer, here, logits_weights(here, r));
  pack_weights<SHARED, TILE>(packer, here, project_weights(here, r));
  if (!KEEPS_GATES) pack_weights<3 * BLOCK, TILE>(packer, here, gates_weights(here, r));
  pack_weights<PART, TILE>(packer, here, shared_weights(here, r));
  pack_weights<BLOCK, TILE>(packer, here, state_weights(here, r));
  if (KEEPS_GATES) pack_weights<3 * BLOCK, TILE>(packer, here, gates_weights(here, r));
}
#endif

DEVICE void load_reverse(ReverseWeights& w, const Here& here, const Reverse& r) {
#if COLUMNS > 16
  const Bits128* packed = (const Bits128*)r.packed + ((size_t)here.cta * WARPS + here.warp) * REVERSE_CELLS * CELL;
  const int cells = (on_latents(here) ? ALL_HIDDEN : on_hidden(here) ? ALL_LATENT : 0) + ALL_UNGATED +
                    (KEEPS_GATES ? 0 : ALL_TILTED) + ALL_UNMIXED;
  start_stream(w.stream, here, packed, shared_memory() + REVERSE_RING, cells);
  load_packed(w.gates, packed + (size_t)cells * CELL, here);
#else
  load_weights(w.latent, here, latent_weights(here, r));
  load_weights(w.logits, here, logits_weights(here, r));
  load_weights(w.project, here, project_weights(here, r));
  load_weights(w.gates, here, gates_weights(here, r));
  load_weights(w.mix_shared, here, shared_weights(here, r));
  load_weights(w.mix_state, here, state_weights(here, r));
#endif
}
