// Weights that are too many to be kept pass through shared memory, over and over, once a step. They are packed before:
// for every warp of every CTA in "cells" (16 inputs x TILE columns) in the order in which it takes them, and in a cell
// as its lanes take them. A warp has room for some cells ("slots"). As soon as it has used one it sets out for the one
// that comes so many cells later; so the next weights are on their way, or there, while it waits for other CTAs.
//
// A lane copies what it will read itself, and nothing else: no barriers are needed. Where the weights do not fit the
// second-level cache either, those that come after are called there, so that memory is read during waits, too; and a few
// are to stay there from step to step, since of all of them, taken in turn, none would.
constexpr int PAIRS = TILE / 16;                 // of tiles of 8 columns, in a cell: 16 bytes of a lane each
constexpr int CELL = PAIRS * 32;                 // its size, in 16 bytes

// cells that a product takes of a warp's
template <int K, int COLUMNS_OF> struct Cells {
  static constexpr int SLICES = K / 16 / WARPS;  // of 16 inputs
  static constexpr int WIDE = COLUMNS_OF / TILE; // cells of a slice
  static constexpr int ALL = SLICES * WIDE;
};
// stands for weights (K, 8 NTILES) that are not kept
template <int K, int NTILES> struct Passing : Cells<K, NTILES * 8> {};

template <bool, class Yes, class No> struct Either { typedef Yes type; };
template <class Yes, class No> struct Either<false, Yes, No> { typedef No type; };
template <bool KEPT, int K, int NTILES>
using Factor = typename Either<KEPT, Weights<K, NTILES>, Passing<K, NTILES>>::type;

template <int SLOTS> struct Stream {
  const Bits128* from;  // this lane's part of the warp's first cell, in global memory
  Bits128* ring;        // and of its first slot, in shared memory
  int cells;            // of a step
  int next;             // the cell that is fetched next
  int slot;             // the slot that is used next
  bool leads;           // the warp's first lane, which calls cells to the cache for all
  Policy keep, pass;    // how the cache is to treat the first LASTING cells, and the others
};
template <> struct Stream<0> {};  // nothing passes

template <int SLOTS> DEVICE int slot_after(const Stream<SLOTS>& stream, int i) {
  return stream.slot + i < SLOTS ? stream.slot + i : stream.slot + i - SLOTS;
}
template <int SLOTS> DEVICE void fetch_cell(Stream<SLOTS>& stream, int slot) {
  const Bits128* from = stream.from + (size_t)stream.next * CELL;
  if (LASTING) {
    const Policy policy = stream.next < LASTING ? stream.keep : stream.pass;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) copy16(stream.ring + slot * CELL + p * 32, from + p * 32, policy);
  } else {
#pragma unroll
    for (int p = 0; p < PAIRS; p++) copy16(stream.ring + slot * CELL + p * 32, from + p * 32);
  }
  end_copies();
  if (AHEAD && stream.leads) {
    const int later = stream.next + AHEAD;
    call_to_cache(stream.from + (size_t)(later < stream.cells ? later : later - stream.cells) * CELL, CELL * 16);
  }
  stream.next = stream.next + 1 == stream.cells ? 0 : stream.next + 1;
}
template <int SLOTS>
DEVICE void start_stream(Stream<SLOTS>& stream, const Here& here, const Bits128* packed, unsigned char* room,
                         int cells) {
  stream.from = packed + here.lane;
  stream.ring = (Bits128*)room + here.warp * SLOTS * CELL + here.lane;
  stream.cells = cells;
  stream.next = stream.slot = 0;
  stream.leads = here.lane == 0;
  stream.keep = keep_policy();
  stream.pass = pass_policy();
  for (int i = 0; i < SLOTS; i++) fetch_cell(stream, i);
}
// at the end: copies that nobody will use must not outlive their CTA
template <int SLOTS> DEVICE void end_stream(Stream<SLOTS>&) {
  if constexpr (SLOTS > 0) await_copies<0>();
}
// the next COUNT cells, as `mma` takes them
template <int COUNT, int SLOTS> DEVICE void read_cells(u32 (&b)[COUNT][TILE / 8][2], const Stream<SLOTS>& stream) {
  await_copies<SLOTS - COUNT>();
#pragma unroll
  for (int i = 0; i < COUNT; i++)
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
      const Bits128 v = stream.ring[slot_after(stream, i) * CELL + p * 32];
      b[i][2 * p][0] = v.x; b[i][2 * p][1] = v.y; b[i][2 * p + 1][0] = v.z; b[i][2 * p + 1][1] = v.w;
    }
}
// sets out for others in their place, when they have been used
template <int COUNT, int SLOTS> DEVICE void refill_cells(Stream<SLOTS>& stream) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) fetch_cell(stream, slot_after(stream, i));
  stream.slot = slot_after(stream, COUNT);
}

template <class Factor, class Stream> DEVICE void pass_over(const Factor&, Stream&) {}
// leaves the weights of a product out, where it is not needed for once
template <int K, int NTILES, int SLOTS> DEVICE void pass_over(const Passing<K, NTILES>& all, Stream<SLOTS>& stream) {
  for (int i = 0; i < all.ALL; i++) {
    await_copies<SLOTS - 1>();
    refill_cells<1>(stream);
  }
}

// the largest number up to `most` that divides n
DEVICE constexpr int divisor(int n, int most) {
  while (n % most) most--;
  return most;
}

template <int K, int NTILES, int SLOTS>
DEVICE void multiply(float (&d)[NTILES][4], const Passing<K, NTILES>&, Stream<SLOTS>& stream, const Here& here,
                     const bf16* inputs, int width) {
  constexpr int SLICES = Cells<K, NTILES * 8>::SLICES, WIDE = Cells<K, NTILES * 8>::WIDE;
  constexpr int MOST = SLOTS / 4 > 1 ? SLOTS / 4 : 1;                              // cells to wait for at once
  constexpr int ROUND = WIDE <= MOST ? divisor(SLICES, MOST / WIDE) : 1;           // slices of a round
  constexpr int COUNT = WIDE <= MOST ? ROUND * WIDE : 1;                           // cells waited for at once
#pragma unroll
  for (int n = 0; n < NTILES; n++) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0.f;
#pragma unroll 1
  for (int s = 0; s < SLICES; s += ROUND) {
    u32 a[ROUND][4];
#pragma unroll
    for (int i = 0; i < ROUND; i++) load_inputs(a[i], inputs, width, (here.warp * SLICES + s + i) * 16, here.lane);
#pragma unroll
    for (int c = 0; c < ROUND * WIDE; c += COUNT) {
      u32 b[COUNT][TILE / 8][2];
      read_cells(b, stream);
#pragma unroll
      for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) mma(d[(c + i) % WIDE * (TILE / 8) + n], a[(c + i) / WIDE], b[i][n]);
      refill_cells<COUNT>(stream);
    }
  }
}

// Packing, by a kernel of its own before each of the others. SPLIT blocks share the work for a CTA.
constexpr int SPLIT = NUM_SPLIT;
struct Packer {
  Bits128* to;  // this lane's part of the warp's first cell
  int share;    // which slices this block packs
  int cell;     // the first of the next product
};
DEVICE Packer make_packer(const Here& here, bf16* packed, int cells) {
  Bits128* to = (Bits128*)packed + ((size_t)here.cta * WARPS + here.warp) * cells * CELL + here.lane;
  return {to, block_index() % SPLIT, 0};
}
// `get` as for `load_weights`
template <int K, int COLUMNS_OF, class Get> DEVICE void pack_weights(Packer& packer, const Here& here, Get get) {
  typedef Cells<K, COLUMNS_OF> Size;
  const int g = here.lane >> 2, i = here.lane & 3;
  for (int s = packer.share; s < Size::SLICES; s += SPLIT) {
    const int k = (here.warp * Size::SLICES + s) * 16 + 2 * i;
#pragma unroll
    for (int p = 0; p < Size::WIDE * PAIRS; p++) {
      const int n = p * 16 + g;
      const Bits128 v = {get(k, n), get(k + 8, n), get(k, n + 8), get(k + 8, n + 8)};
      packer.to[(size_t)(packer.cell + s * Size::WIDE) * CELL + p * 32] = v;
    }
  }
  packer.cell += Size::ALL;
}
// weights that are kept after all, from where they were packed
template <int K, int NTILES>
DEVICE void load_packed(Weights<K, NTILES>& weights, const Bits128* cells, const Here& here) {
#pragma unroll
  for (int s = 0; s < Weights<K, NTILES>::STEPS; s++)
#pragma unroll
    for (int p = 0; p < NTILES / 2; p++) {
      const Bits128 v = cells[(s * (NTILES / 2) + p) * 32 + here.lane];
      weights.at[s][2 * p][0] = v.x; weights.at[s][2 * p][1] = v.y;
      weights.at[s][2 * p + 1][0] = v.z; weights.at[s][2 * p + 1][1] = v.w;
    }
}
template <int K, int NTILES> DEVICE void load_packed(Passing<K, NTILES>&, const Bits128*, const Here&) {}
