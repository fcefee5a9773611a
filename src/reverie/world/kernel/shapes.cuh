// Widths, who a thread is, and how CTAs wait for one another. DETER, HIDDEN, BLOCKS, GROUPS, CLASSES, UNIMIX, COLUMNS
// (of a product that a CTA works out), SLOTS_FORWARD and SLOTS_REVERSE (cells of weights that a warp has room for, see
// stream.cuh), AHEAD (cells beyond those that are called to the cache), LASTING (cells that it is to keep) and TRAPPING
// (whether a wait that never ends kills the program, or else is noted in `fault` and passed over) are given by whoever
// compiles, as is TIMED: whether each wait writes down when it began and when it ended, behind `fault`.
#define PATIENCE 2000000u  // polls before a wait counts as endless: a second or two

constexpr int ROWS = 16;                      // of the batch: the height of a tile of the tensor cores
constexpr int THREADS = 256, WARPS = 8;
constexpr int TILE = COLUMNS;                 // columns of a product that a CTA works out
constexpr int EACH = TILE / 16;               // of them, a thread's: neighbours
constexpr bool STREAMED = EACH > 1;           // weights pass through shared memory: there are too many to be kept
constexpr int CTAS = DETER / TILE;
constexpr int BLOCK = DETER / BLOCKS;         // width of one block of the state
constexpr int BLOCK_CTAS = BLOCK / TILE;
constexpr int LATENT = GROUPS * CLASSES;
constexpr int INPUTS = BLOCK + 3 * HIDDEN;    // of one block of `mix`: its state, then summary, latent and action
constexpr int SHARED = 2 * HIDDEN;            // outputs of the joined projection of the state: posterior's, summary's
constexpr int TILES_SHARED = SHARED / TILE;
constexpr int PARTS = CTAS / TILES_SHARED;    // into which the joined projection cuts the state
constexpr int PART = DETER / PARTS;
constexpr int PART_CTAS = CTAS / PARTS;
constexpr int LATENT_CTAS = LATENT / TILE;    // CTAs 0.. that work on latents
constexpr int SUMMARY_CTA = LATENT_CTAS;      // the one that works on summaries
constexpr int HIDDEN_CTA = CTAS / 2;          // the first that works on a hidden layer
constexpr int HIDDEN_CTAS = HIDDEN / TILE;
constexpr int LANE_HIDDEN = HIDDEN / 32;      // numbers of such a row that a lane holds when a warp holds the row
constexpr int LANE_BLOCK = BLOCK / 32;
constexpr int LANE_PART = PART / 32;
constexpr int LANE_CTAS = CTAS / 32;
constexpr int GROUP_LANES = CLASSES / EACH;   // neighbouring lanes that hold a group of the latent
constexpr float EPS = 1e-4f;
static_assert(DETER % (TILE * BLOCKS) == 0 && BLOCK % 32 == 0 && HIDDEN % 32 == 0, "rows must divide into lanes");
static_assert(CTAS % 32 == 0 && CTAS % TILES_SHARED == 0, "parts must divide into CTAs");
static_assert(PART % BLOCK == 0 && PARTS * TILES_SHARED == CTAS, "parts must be whole blocks");
static_assert(TILE % CLASSES == 0 && LATENT % TILE == 0, "groups must lie within a tile");
static_assert(TILE % 16 == 0 && CLASSES % EACH == 0 && 16 % GROUP_LANES == 0, "groups must be held by whole lanes");
static_assert(!STREAMED || (BLOCK % (16 * WARPS) == 0 && HIDDEN % (16 * WARPS) == 0), "warps must have whole slices");
static_assert(SUMMARY_CTA < HIDDEN_CTA && HIDDEN_CTA + HIDDEN_CTAS <= CTAS, "roles must not overlap");
static_assert(HIDDEN_CTA % HIDDEN_CTAS == 0, "a remainder must say which of them a CTA is");
static_assert((SHARED / 16) % WARPS == 0, "each half of the joined projection must belong to whole warps");

DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int FORWARD_WIDTH = larger(larger(INPUTS, PART), LATENT);
constexpr int REVERSE_WIDTH = larger(larger(3 * BLOCK, PART), larger(LATENT, SHARED));
constexpr int SPARE = 8;  // added to rows in shared memory, so that the lanes of a warp reach different banks

// bytes of shared memory for inputs and sums of products: beside each other, or in turns where room is short
DEVICE constexpr int bytes_of_products(int width, int columns) {
  const int inputs = ROWS * (width + SPARE) * 2, sums = WARPS * ROWS * (columns + SPARE) * 4;
  return STREAMED ? larger(inputs, sums) : inputs + sums;
}

struct Here {
  int cta, tid, warp, lane;
  int row, col;     // of a 16 x TILE tile: thread `tid` holds the EACH numbers from there
  bf16* inputs;     // shared: 16 rows of a product's inputs
  float* sums;      // shared: what each warp's share of a product came to; where inputs were, if weights are streamed
  u32* fault;
  bool broken;      // gave up waiting once: waits no more
};

DEVICE Here make_here(int width, u32* fault) {
  Here here;
  here.cta = block_index();
  here.tid = thread_index();
  here.warp = here.tid >> 5;
  here.lane = here.tid & 31;
  here.row = here.tid >> 4;
  here.col = (here.tid & 15) * EACH;
  here.inputs = (bf16*)shared_memory();
  here.sums = (float*)(shared_memory() + (STREAMED ? 0 : ROWS * (width + SPARE) * sizeof(bf16)));
  here.fault = fault;
  here.broken = false;
  return here;
}

// counters
constexpr int LINE = 32;  // words between counters, so that each has a cache line of its own
// forwards
enum {
  MIXED, PROJECTED, SUMMARISED = PROJECTED + 2, INFERRED, EMBEDDED, ADVANCED, FORWARD_COUNTERS = ADVANCED + PARTS
};
// backwards
enum { TILTED, UNMIXED, UNSUMMARISED, UNDRAWN, UNINFERRED, UNGATED, REVERSE_COUNTERS = UNGATED + BLOCKS };

DEVICE void arrive(u32* counters, int which) {
  block_sync();  // all of this CTA's writes come before thread 0's release
  if (thread_index() == 0) add_release(counters + which * LINE);
}

DEVICE void wait_for(Here& here, const u32* counters, int which, u32 target, int t) {
#if TIMED
  u32* times = here.fault + LINE + (((t + 1) * CTAS + here.cta) * NUM_COUNTERS + which) * 2;
  if (here.tid == 0) times[0] = cycles();
#endif
  if (here.tid == 0 && !here.broken) {
    u32 polls = 0;
    while (read_acquire(counters + which * LINE) < target) {
      if (++polls > PATIENCE) {
        if (TRAPPING) give_up();
        *here.fault = 1u + (u32)which + ((u32)t << 8);
        here.broken = true;
        break;
      }
      pause();
    }
  }
#if TIMED
  if (here.tid == 0) times[1] = cycles();
#endif
  block_sync();
}
