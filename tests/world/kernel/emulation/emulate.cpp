// Plays the GPU on one CPU core, to prove indices, fragments, places of barriers and numbers of scan.cu without a GPU.
//
// Every GPU thread is a fiber. A warp's shuffles and products happen when all its lanes have come to them, a block's
// barrier when all its threads have; a poll that fails lets others run. CTAs, and warps within them, are run in an
// order that a seed shuffles, each as far as it can get: values read before they were written are then seen, since
// their places hold NaN before. What it cannot show: the weak memory order of the real thing, and time.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#define EMULATED
#define DEVICE static inline
#define KERNEL extern "C" void
typedef uint32_t u32;
typedef uint16_t bf16;
struct alignas(8) Bits64 { u32 x, y; };
struct alignas(16) Bits128 { u32 x, y, z, w; };

extern "C" void switch_to(void** from, void* to);
asm(R"(
.globl switch_to
switch_to:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
enum State { READY, AT_WARP, AT_BLOCK, POLLING, DONE };
struct Warp; struct Cta;
struct Copy { void* to; const void* from; int group; };
struct Fiber { void* sp; State state; int tid; Warp* warp; Cta* cta; std::deque<Copy> copies; int groups; };
struct Warp { int waiting; int op; u32 in[32][10]; float out[32][4]; int arg[32][2]; Fiber* lanes[32]; };
struct Cta {
  int index, waiting, alive;
  std::vector<unsigned char> shared;
  std::vector<Fiber*> fibers;
  std::vector<Warp> warps;
};
static Fiber* me;
static void* scheduler;
static void (*body)();
static long progress;
static void yield_as(State state) { me->state = state; switch_to(&me->sp, scheduler); }

static int thread_index() { return me->tid; }
static int block_index() { return me->cta->index; }
static unsigned char* shared_memory() { return me->cta->shared.data(); }
static float as_float(u32 b) { float f; memcpy(&f, &b, 4); return f; }
static u32 as_bits(float f) { u32 b; memcpy(&b, &f, 4); return b; }
static float fast_exp(float x) { return std::exp(x); }
static float fast_divide(float x, float y) { return x / y; }
static float fine_exp(float x) { return std::exp(x); }
static float fine_log(float x) { return std::log(x); }
static float inverse_root(float x) { return 1.f / std::sqrt(x); }
static bf16 narrow(float x) {
  u32 b = as_bits(x);
  if (std::isnan(x)) return 0x7fff;
  return (bf16)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
static u32 pack(float first, float second) { return (u32)narrow(first) | ((u32)narrow(second) << 16); }
static void fail(const char* why) {
  fprintf(stderr, "%s\n", why);
  abort();
}
static Bits128 fetch16(const void* p) {
  if ((uintptr_t)p % 16) fail("a load of 16 bytes is misaligned");
  return *(const Bits128*)p;
}
static Bits64 fetch8(const void* p) {
  if ((uintptr_t)p % 8) fail("a load of 8 bytes is misaligned");
  return *(const Bits64*)p;
}
static void put16(void* p, const Bits128& v) {
  if ((uintptr_t)p % 16) fail("a store of 16 bytes is misaligned");
  *(Bits128*)p = v;
}
static u32 fetch4(const void* p) { return *(const u32*)p; }
// a copy takes place when its thread waits for it, and not before: until then nothing there can be used
typedef int Policy;
static Policy keep_policy() { return 0; }
static Policy pass_policy() { return 0; }
static void copy16(void* to, const void* from) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16) fail("a copy of 16 bytes is misaligned");
  const unsigned char* memory = me->cta->shared.data();
  if (to < memory || (unsigned char*)to + 16 > memory + me->cta->shared.size()) fail("a copy leaves shared memory");
  for (const Copy& copy : me->copies) if (copy.to == to) fail("two copies to one place are on their way");
  memset(to, 0xff, 16);
  me->copies.push_back({to, from, me->groups});
}
static void copy16(void* to, const void* from, Policy) { copy16(to, from); }
static void end_copies() { me->groups++; }
template <int N> static void await_copies() {
  for (; !me->copies.empty() && me->copies.front().group < me->groups - N; me->copies.pop_front())
    memcpy(me->copies.front().to, me->copies.front().from, 16);
}
static void call_to_cache(const void* from, u32 bytes) {
  if ((uintptr_t)from % 16 || bytes % 16) fail("a stretch for the cache is misaligned");
  volatile char last = ((const char*)from)[bytes - 1];  // it must be there
}
static void add_release(u32* counter) { ++*counter; ++progress; }
static u32 read_acquire(const u32* counter) { return *counter; }
static u32 passed = 0;
static u32 cycles() { return ++passed; }
static void give_up() { fail("gave up"); }
static void pause() { yield_as(POLLING); }
static void block_sync() {
  Cta* cta = me->cta;
  if (++cta->waiting == (int)cta->fibers.size()) {
    cta->waiting = 0;
    for (Fiber* f : cta->fibers) if (f->state == AT_BLOCK) f->state = READY;
  } else yield_as(AT_BLOCK);
}
// all lanes meet; the last does what `op` says
static void warp_meet(int op, void (*act)(Warp*)) {
  Warp* w = me->warp;
  if (w->waiting && w->op != op) fail("lanes of a warp diverged");
  w->op = op;
  if (++w->waiting == 32) {
    act(w);
    w->waiting = 0;
    for (Fiber* f : w->lanes) if (f->state == AT_WARP) f->state = READY;
  } else yield_as(AT_WARP);
}
// lanes hand in a number and two arguments; `from` says whose number a lane gets
template <class From> static float shuffle(float x, int arg, int width, int op, From) {
  int lane = me->tid & 31;
  Warp* w = me->warp;
  w->in[lane][0] = as_bits(x); w->arg[lane][0] = arg; w->arg[lane][1] = width;
  warp_meet(op, [](Warp* w) {
    for (int i = 0; i < 32; i++) w->out[i][0] = as_float(w->in[From()(i, w->arg[i][0], w->arg[i][1])][0]);
  });
  return w->out[lane][0];
}
struct Across { int operator()(int lane, int mask, int) { return lane ^ mask; } };
struct Before { int operator()(int lane, int by, int width) { return lane % width < by ? lane : lane - by; } };
struct Within { int operator()(int lane, int which, int width) { return lane / width * width + which; } };
static float warp_xor(float x, int mask) { return shuffle(x, mask, 32, 1, Across()); }
static float warp_up(float x, int by, int width) { return shuffle(x, by, width, 2, Before()); }
static float warp_at(float x, int lane, int width) { return shuffle(x, lane, width, 3, Within()); }
// fragments as the PTX manual gives them for m16n8k16 of bf16: group g = lane / 4, i = lane % 4
static void mma(float* d, const u32* a, const u32* b) {
  int lane = me->tid & 31;
  Warp* w = me->warp;
  for (int i = 0; i < 4; i++) { w->in[lane][i] = a[i]; w->in[lane][6 + i] = as_bits(d[i]); }
  w->in[lane][4] = b[0]; w->in[lane][5] = b[1];
  warp_meet(4, [](Warp* w) {
    float A[16][16], B[16][8];
    auto half = [](u32 word, int which) { return as_float(which ? word & 0xffff0000u : word << 16); };
    for (int lane = 0; lane < 32; lane++) {
      int g = lane / 4, i = lane % 4;
      for (int reg = 0; reg < 4; reg++)
        for (int h = 0; h < 2; h++) A[g + (reg & 1) * 8][2 * i + (reg >> 1) * 8 + h] = half(w->in[lane][reg], h);
      for (int reg = 0; reg < 2; reg++)
        for (int h = 0; h < 2; h++) B[2 * i + reg * 8 + h][g] = half(w->in[lane][4 + reg], h);
    }
    for (int lane = 0; lane < 32; lane++)
      for (int reg = 0; reg < 4; reg++) {
        int row = lane / 4 + (reg >> 1) * 8, col = lane % 4 * 2 + (reg & 1);
        float sum = as_float(w->in[lane][6 + reg]);
        for (int k = 0; k < 16; k++) sum += A[row][k] * B[k][col];
        w->out[lane][reg] = sum;
      }
  });
  for (int i = 0; i < 4; i++) d[i] = w->out[lane][i];
}
#include "scan.cu"

static void entry() {
  body();
  me->state = DONE;
  me->cta->alive--;
  ++progress;
  switch_to(&me->sp, scheduler);
  abort();
}

const size_t STACK = 48 << 10;

static void place(Cta& cta, int index, int bytes, Fiber* fibers, char* stacks) {
  cta.index = index; cta.waiting = 0; cta.alive = THREADS;
  cta.shared.assign(bytes, 0xff);  // NaN in whatever form
  cta.warps.resize(WARPS);
  cta.fibers.resize(THREADS);
  for (int t = 0; t < THREADS; t++) {
    Warp* w = &cta.warps[t / 32];
    void** sp = (void**)(stacks + (t + 1) * STACK);
    *--sp = nullptr;  // keeps the stack aligned as after a call
    *--sp = (void*)entry;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    fibers[t] = {sp, READY, t, w, &cta, {}, 0};
    w->lanes[t % 32] = &fibers[t]; w->waiting = 0;
    cta.fibers[t] = &fibers[t];
  }
}

// runs the threads of a warp until all of them wait; whether any did run
static bool run_warp(Warp& warp) {
  bool moved = false, again = true;
  while (again) {
    again = false;
    for (Fiber* f : warp.lanes)
      if (f->state == READY) { again = moved = true; me = f; switch_to(&scheduler, f->sp); }
  }
  return moved;
}

// runs a CTA until all its threads wait for others; or, from seed 2 on, until others overtake some of its warps
static void run_cta(Cta& cta, std::vector<int>& warps, unsigned seed, std::mt19937& random) {
  for (Fiber* f : cta.fibers) if (f->state == POLLING) f->state = READY;
  for (bool moved = true; moved;) {
    moved = false;
    if (seed) std::shuffle(warps.begin(), warps.end(), random);
    for (int w : warps) {
      moved |= run_warp(cta.warps[w]);
      if (seed >= 2 && random() % 8 == 0) return;
    }
  }
}

// returns 0, or 1 where no thread can go on
static int run_all(int ctas, int bytes, unsigned seed) {
  size_t fibers = (size_t)ctas * THREADS;
  const int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char* stacks = (char*)mmap(nullptr, fibers * STACK, access, kind, -1, 0);
  if (stacks == MAP_FAILED) fail("no room for the stacks of all threads");
  std::vector<Fiber> all(fibers);
  std::vector<Cta> grid(ctas);
  std::mt19937 random(seed);
  std::vector<int> order(ctas), warps(WARPS);
  for (int c = 0; c < ctas; c++) {
    order[c] = c;
    place(grid[c], c, bytes, &all[(size_t)c * THREADS], stacks + (size_t)c * THREADS * STACK);
  }
  for (int i = 0; i < WARPS; i++) warps[i] = i;
  int left = ctas, idle = 0;
  while (left && idle <= (seed >= 2 ? 200 : 0)) {
    long before = progress;
    if (seed) std::shuffle(order.begin(), order.end(), random);
    left = 0;
    for (int c : order) {
      if (grid[c].alive) run_cta(grid[c], warps, seed, random);
      if (grid[c].alive) left++;
    }
    idle = progress == before ? idle + 1 : 0;
  }
  munmap(stacks, fibers * STACK);
  return left > 0;
}

// the same for CTAs that need nothing of one another, so that the stacks of one suffice
static int run_apart(int ctas) {
  std::vector<char> stacks(THREADS * STACK + 16);
  std::vector<Fiber> fibers(THREADS);
  std::vector<int> warps(WARPS);
  std::mt19937 random;
  for (int i = 0; i < WARPS; i++) warps[i] = i;
  for (int c = 0; c < ctas; c++) {
    Cta cta;
    char* aligned = (char*)(((uintptr_t)stacks.data() + 15) / 16 * 16);
    place(cta, c, 0, fibers.data(), aligned);
    run_cta(cta, warps, 0, random);
    if (cta.alive) return 1;
  }
  return 0;
}

static Forward forward_args;
static Reverse reverse_args;
extern "C" int emulate_forward(const void* args, unsigned seed) {
  forward_args = *(const Forward*)args;
  body = [] { forward_scan(forward_args); };
  return run_all(CTAS, FORWARD_BYTES, seed);
}
#if COLUMNS > 16
extern "C" int emulate_forward_pack(const void* args, unsigned) {
  forward_args = *(const Forward*)args;
  body = [] { forward_pack(forward_args); };
  return run_apart(CTAS * SPLIT);
}
extern "C" int emulate_reverse_pack(const void* args, unsigned) {
  reverse_args = *(const Reverse*)args;
  body = [] { reverse_pack(reverse_args); };
  return run_apart(CTAS * SPLIT);
}
#endif
extern "C" int emulate_reverse(const void* args, unsigned seed) {
  reverse_args = *(const Reverse*)args;
  body = [] { reverse_scan(reverse_args); };
  return run_all(CTAS, REVERSE_BYTES, seed);
}
