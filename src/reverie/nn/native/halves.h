/* Matrix products in bfloat16, added up in float32, where the processor has instructions for them: AMX works at tiles of
   16 rows and 16 columns, AVX-512 at one row and 16 columns. Inputs come 32 at a time, outputs 16. */

#define INPUTS 32 /* that are multiplied together */
#define TALL 16   /* rows of a tile, and pairs of inputs */

typedef unsigned Pair; /* two numbers that are multiplied one after the other, the first in the lower half */

#ifdef __AVX512BF16__
#include <immintrin.h>

/* 16 numbers, rounded, each in the lower half of its place. */
INLINE __m512i rounded(const float *x) {
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x)));
}

/* 16 pairs from 16 numbers each of two rows, which lie one after the other for the rows of a matrix. */
INLINE __m512i paired(__m512i first, __m512i second) { return _mm512_or_si512(first, _mm512_slli_epi32(second, 16)); }

/* Weights as products read them: for 16 columns at a time their biases, then pairs of inputs' weights. */
static void pack_half(const Op *op) {
    float *to = op->packed, row[2][LANES];
    for (long g = 0; g < op->groups; g++)
        for (long begin = 0; begin < op->n; begin += LANES) {
            for (long n = 0; n < LANES; n++) *to++ = op->bias ? op->bias[g * op->n + begin + n] : 0;
            for (long k = 0; k < op->k; k += 2, to += LANES) {
                const float *from = op->weight + g * op->source_step + k * op->k_stride + begin * op->n_stride;
                for (long n = 0; n < LANES; n++)
                    row[0][n] = from[n * op->n_stride], row[1][n] = from[op->k_stride + n * op->n_stride];
                _mm512_storeu_si512(to, paired(rounded(row[0]), rounded(row[1])));
            }
        }
}

/* Columns of rows as pairs of inputs, one row behind the other. */
static void round_rows(const float *x, long width, long rows, long columns, Pair *to) {
    for (long r = 0; r < rows; r++, x += width)
        for (long i = 0; i < columns; i += LANES, to += LANES / 2)
            _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
}

/* Columns as pairs of rows; rows that fill up a multiple of 32 are zeros. */
static void pair_rows(const float *x, long width, long rows, long columns, Pair *to) {
    for (long r = 0; r < (rows + INPUTS - 1) / INPUTS * INPUTS; r += 2, x += 2 * width)
        for (long i = 0; i < columns; i += LANES, to += LANES) {
            const __m512i none = _mm512_setzero_si512(), first = r < rows ? rounded(x + i) : none;
            _mm512_storeu_si512(to, paired(first, r + 1 < rows ? rounded(x + width + i) : none));
        }
}

/* Where a product finds its numbers: bytes between rows, and to the next tile along what is added up and beside it. */
typedef struct {
    char *at;
    long apart, along, beside;
} Tiles;

#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW_TILES 0x1023 /* what arch_prctl calls it to ask for the state of an extension */
#define TILE_DATA 18
#define WRITTEN __asm__ volatile("" ::: "memory") /* compilers do not know what tiles are loaded from */

/* Let this thread use tiles of 16 rows and 64 bytes; 0 where the system does not allow it. */
static int tiles_ready(void) {
    struct {
        unsigned char palette, start, rest[14];
        unsigned short bytes[16];
        unsigned char rows[16];
    } config = {.palette = 1};
    if (syscall(SYS_arch_prctl, ALLOW_TILES, TILE_DATA)) return 0;
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = TALL;
    WRITTEN;
    _tile_loadconfig(&config);
    return 1;
}

static void tiles_done(int ready) {
    if (ready) _tile_release();
}

/* One or two tiles of rows times one or two of columns, added to what is at `start` and written to `to`. */
INLINE void tile_product(const int tall, const int wide, Tiles x, Tiles w, Tiles start, Tiles to, long times) {
    WRITTEN;
    _tile_loadd(0, start.at, start.apart);
    if (wide) _tile_loadd(1, start.at + start.beside, start.apart);
    if (tall) _tile_loadd(2, start.at + start.along, start.apart);
    if (tall && wide) _tile_loadd(3, start.at + start.along + start.beside, start.apart);
    for (long i = 0; i < times; i++, x.at += x.along, w.at += w.along) {
        _tile_loadd(4, x.at, x.apart);
        _tile_loadd(6, w.at, w.apart);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) _tile_loadd(7, w.at + w.beside, w.apart);
        if (wide) _tile_dpbf16ps(1, 4, 7);
        if (tall) _tile_loadd(5, x.at + x.beside, x.apart);
        if (tall) _tile_dpbf16ps(2, 5, 6);
        if (tall && wide) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to.at, to.apart);
    if (wide) _tile_stored(1, to.at + to.beside, to.apart);
    if (tall) _tile_stored(2, to.at + to.along, to.apart);
    if (tall && wide) _tile_stored(3, to.at + to.along + to.beside, to.apart);
}

/* All tiles of rows times all tiles of columns; for what is read and written `along` counts rows, `beside` columns. */
static void tile_products(Tiles x, Tiles w, Tiles start, Tiles to, long rows, long columns, long times) {
    for (long n = 0; n < columns; n += 2)
        for (long r = 0; r < rows; r += 2) {
            const int tall = r + 1 < rows, wide = n + 1 < columns;
            const long from = r * start.along + n * start.beside, into = r * to.along + n * to.beside;
            const Tiles a = {x.at + r * x.beside, x.apart, x.along, x.beside};
            const Tiles b = {w.at + n * w.beside, w.apart, w.along, w.beside};
            const Tiles c = {start.at + from, start.apart, start.along, start.beside};
            const Tiles d = {to.at + into, to.apart, to.along, to.beside};
            if (tall && wide) tile_product(1, 1, a, b, c, d, times);
            else if (tall) tile_product(1, 0, a, b, c, d, times);
            else if (wide) tile_product(0, 1, a, b, c, d, times);
            else tile_product(0, 0, a, b, c, d, times);
        }
}

/* 16 by 16 pairs with rows as columns. */
INLINE void turn(const Pair *from, long apart, Pair *to) {
    __m512i a[16], b[16];
    UNROLL for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(from + i * apart);
    UNROLL for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++) { /* quarters of four vectors, of which the first are of columns i, 4 + i, ... */
        const __m512i even[2] = {_mm512_shuffle_i32x4(a[i], a[4 + i], 0x88), _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88)};
        const __m512i odd[2] = {_mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd), _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd)};
        _mm512_storeu_si512(to + i * 16, _mm512_shuffle_i32x4(even[0], even[1], 0x88));
        _mm512_storeu_si512(to + (4 + i) * 16, _mm512_shuffle_i32x4(odd[0], odd[1], 0x88));
        _mm512_storeu_si512(to + (8 + i) * 16, _mm512_shuffle_i32x4(even[0], even[1], 0xdd));
        _mm512_storeu_si512(to + (12 + i) * 16, _mm512_shuffle_i32x4(odd[0], odd[1], 0xdd));
    }
}
#else
static int tiles_ready(void) { return 0; }
static void tiles_done(int ready) {}
static void tile_products(Tiles x, Tiles w, Tiles start, Tiles to, long rows, long columns, long times) {}
static void turn(const Pair *from, long apart, Pair *to) {}
#endif

/* Sums of some rows over all pairs of inputs, for 16 columns. */
INLINE void product_half(const int rows, const Pair *x, long apart, float *y, const float *w, long k, long width,
                         long add) {
    __m512 sum[ROWS];
    UNROLL for (int r = 0; r < rows; r++) {
        sum[r] = _mm512_loadu_ps(w);
        if (add) sum[r] += _mm512_loadu_ps(y + r * width);
    }
    for (long i = 0; i < k / 2; i++) {
        w += LANES;
        const __m512bh each = (__m512bh)_mm512_loadu_ps(w);
        UNROLL for (int r = 0; r < rows; r++)
            sum[r] = _mm512_dpbf16_ps(sum[r], (__m512bh)_mm512_set1_epi32(x[r * apart + i]), each);
    }
    UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(y + r * width, sum[r]);
}

static void products_half(long rows, const Pair *x, long apart, float *y, const float *w, long k, long width, long add) {
    WITH_ROWS(rows, product_half, x, apart, y, w, k, width, add)
}

/* Biases added to the outputs of rows, where products are to be added, too. */
static void add_bias(const float *bias, float *y, long n, Tile t) {
    for (long r = 0; r < t.rows; r++, y += t.width) APART for (long i = 0; i < n; i++) y[i] += bias[i];
}

/* What `linear` does. */
static void linear_half(const Op *op, Tile t) {
    const long columns = op->in_step * (op->groups - 1) + op->k, block = (1 + op->k / 2) * LANES, some = evenly(t.rows);
    const long tiles = (t.rows + TALL - 1) / TALL;
    round_rows(t.at + op->a, t.width, t.tiles ? tiles * TALL : t.rows, columns, t.half);
    for (long g = 0; g < op->groups; g++) {
        const long add = op->add || (g && !op->out_step);
        const float *w = op->packed + g * op->n / LANES * block;
        const Pair *x = t.half + g * op->in_step / 2;
        float *y = t.at + op->b + g * op->out_step;
        if (!t.tiles) {
            for (long n = 0; n < op->n; n += LANES, w += block)
                for (long r = 0; r < t.rows; r += some)
                    products_half(t.rows - r < some ? t.rows - r : some, x + r * columns / 2, columns / 2,
                                  y + r * t.width + n, w, op->k, t.width, add);
            continue;
        }
        const Tiles from = {(char *)x, 2 * columns, 2 * INPUTS, 2 * TALL * columns};
        const Tiles by = {(char *)(w + LANES), 64, 64 * TALL, 4 * block};
        const Tiles to = {(char *)y, 4 * t.width, 4 * TALL * t.width, 64}, bias = {(char *)w, 0, 0, 4 * block};
        if (add && op->bias) add_bias(op->bias + g * op->n, y, op->n, t);
        tile_products(from, by, add ? to : bias, to, tiles, op->n / LANES, op->k / INPUTS);
    }
}

/* Some inputs of all pairs of rows times the gradients of 16 outputs, added up. */
INLINE void outer_half(const int inputs, const Pair *x, long apart, const Pair *by, long by_apart, float *sums,
                       long pairs) {
    __m512 sum[ROWS];
    UNROLL for (int i = 0; i < inputs; i++) sum[i] = _mm512_loadu_ps(sums + i * LANES);
    for (long r = 0; r < pairs; r++, x += apart, by += by_apart) {
        const __m512bh each = (__m512bh)_mm512_loadu_si512(by);
        UNROLL for (int i = 0; i < inputs; i++)
            sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32(x[i]), each);
    }
    UNROLL for (int i = 0; i < inputs; i++) _mm512_storeu_ps(sums + i * LANES, sum[i]);
}

static void outers_half(long inputs, const Pair *x, long apart, const Pair *by, long by_apart, float *sums, long pairs) {
    WITH_ROWS(inputs, outer_half, x, apart, by, by_apart, sums, pairs)
}

/* What `weigh` does. */
static void weigh_half(const Op *op, Tile t) {
    const long in = op->in_step * (op->groups - 1) + op->k, out = op->out_step * (op->groups - 1) + op->n;
    const long times = (t.rows + INPUTS - 1) / INPUTS, block = (op->k + 1) * LANES, some = evenly(op->k);
    Pair *inputs = t.half, *by = inputs + times * TALL * in, *turned = by + times * TALL * out;
    pair_rows(t.at + op->a, t.width, t.rows, in, inputs);
    pair_rows(t.at + op->b, t.width, t.rows, out, by);
    for (long g = 0; g < op->groups; g++) {
        float *sums = op->packed + t.share * op->share + g * op->n / LANES * block;
        const Pair *x = inputs + g * op->in_step, *goal = by + g * op->out_step;
        for (long n = 0; n < op->n; n += LANES) {
            float *first = sums + n / LANES * block;
            total(t.at + op->b + g * op->out_step + n, first, t.rows, t.width);
            for (long k = 0; k < op->k && !t.tiles; k += some)
                outers_half(op->k - k < some ? op->k - k : some, x + k, in, goal + n, out, first + (k + 1) * LANES,
                            (t.rows + 1) / 2);
        }
        if (!t.tiles) continue;
        for (long k = 0; k < op->k && (!g || op->in_step); k += TALL)
            for (long i = 0; i < times; i++)
                turn(x + k + i * TALL * in, in, turned + (k / TALL * times + i) * TALL * TALL);
        const Tiles from = {(char *)turned, 64, 64 * TALL, 64 * TALL * times};
        const Tiles with = {(char *)goal, 4 * out, 4 * TALL * out, 64};
        const Tiles to = {(char *)(sums + LANES), 64, 64 * TALL, 4 * block};
        tile_products(from, with, to, to, op->k / TALL, op->n / LANES, times);
    }
}

/* How many pairs an operation needs for so many rows. */
static long half_room(const Op *op, long rows) {
    const long in = op->in_step * (op->groups - 1) + op->k, out = op->out_step * (op->groups - 1) + op->n;
    const long most = (rows + INPUTS - 1) / INPUTS * INPUTS;
    return op->half ? most * (op->kind == LINEAR ? in : in + out + op->k) / 2 + LANES : 0;
}

#else
static int tiles_ready(void) { return 0; }
static void tiles_done(int ready) {}
static void pack_half(const Op *op) {}
static void linear_half(const Op *op, Tile t) {}
static void weigh_half(const Op *op, Tile t) {}
static long half_room(const Op *op, long rows) { return 0; }
#endif

/* How products in bfloat16 are taken here: not at all, row by row, or by tiles. */
long halves(void) {
#ifdef __AVX512BF16__
    const int ready = tiles_ready();
    tiles_done(ready);
    return ready ? 2 : __builtin_cpu_is("amd") != 0; /* others take no less time for them than for float32 */
#else
    return 0;
#endif
}
