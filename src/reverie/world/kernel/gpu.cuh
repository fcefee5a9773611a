// What the GPU gives us: an instruction or two each. Tests play the GPU on a CPU, with functions of the same names.
typedef unsigned int u32;
typedef unsigned short bf16;  // the bits of a bfloat16; arithmetic is always done in float
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 1)
struct __align__(8) Bits64 { u32 x, y; };
struct __align__(16) Bits128 { u32 x, y, z, w; };

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE void block_sync() { __syncthreads(); }
DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 as_bits(float x) { return __float_as_uint(x); }
DEVICE float fast_exp(float x) { return __expf(x); }
DEVICE float fast_divide(float x, float y) { return __fdividef(x, y); }
DEVICE float fine_exp(float x) { return expf(x); }
DEVICE float fine_log(float x) { return logf(x); }
DEVICE float inverse_root(float x) { return rsqrtf(x); }
DEVICE float warp_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEVICE float warp_up(float x, int by, int width) { return __shfl_up_sync(0xffffffffu, x, by, width); }
DEVICE float warp_at(float x, int lane, int width) { return __shfl_sync(0xffffffffu, x, lane, width); }
// two floats rounded to one word, the first in its lower half
DEVICE u32 pack(float first, float second) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
DEVICE bf16 narrow(float x) {
  bf16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
// d (16 x 8) += a (16 x 16) b (16 x 8) by a warp; which lane holds what: see `load_inputs`, `load_weights`, `keep_sums`
DEVICE void mma(float* d, const u32* a, const u32* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// loads past the first-level cache. The intrinsic __ldcg is not volatile and might be moved before a wait.
DEVICE Bits128 fetch16(const void* p) {
  Bits128 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
DEVICE Bits64 fetch8(const void* p) {
  Bits64 v;
  asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
DEVICE u32 fetch4(const void* p) {
  u32 v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// a store that is not taken apart where registers are short
DEVICE void put16(void* p, const Bits128& v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// copies of 16 bytes from global to shared memory, past the first-level cache and without a register. They are counted
// in groups, each ended by `end_copies`; a thread waits until at most N of its groups, the latest, are on their way.
DEVICE void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}
// the same of what the second-level cache is to keep as long as it can, or to give up first
typedef unsigned long long Policy;
DEVICE Policy keep_policy() {
  Policy policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
DEVICE Policy pass_policy() {
  Policy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
DEVICE void copy16(void* to, const void* from, Policy policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
               ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "l"(policy) : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// lets the second-level cache fetch what will be read later
DEVICE void call_to_cache(const void* from, u32 bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
DEVICE void add_release(u32* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
DEVICE u32 read_acquire(const u32* counter) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
#if TIMED
DEVICE u32 cycles() { return (u32)clock64(); }
#endif
DEVICE void give_up() { asm volatile("trap;"); }
DEVICE void pause() {}
