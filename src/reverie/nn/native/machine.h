/* Numbers in vectors, and the functions that networks are made of. Loops are plain: compilers make vectors of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef __clang__
#pragma GCC optimize("no-thread-jumps") /* which would part loops with bounds in them: three times as long */
#endif

#define LANES 16 /* columns of a product that are worked out together; columns are laid out in multiples of it */
#ifdef __AVX512F__
#define BYTES 64 /* of a vector */
#define ROWS 12  /* of a product that are worked out together, so that their sums fill the registers */
#else
#define BYTES 32
#define ROWS 6
#endif
#define PARTS (LANES * 4 / BYTES) /* vectors to those columns */
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(words) _Pragma(#words)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__)) /* before a loop that adds up */
#define MAX(most) PRAGMA(omp simd reduction(max : most))
#define APART PRAGMA(GCC ivdep) /* before a loop that writes nothing it reads later */

/* Call a function whose first argument is a number of rows that the compiler knows; all that are more count as ROWS. */
#define CASE(count, function, ...) case count: function(count, __VA_ARGS__); break;
#if ROWS == 12
#define MORE(...) CASE(6, __VA_ARGS__) CASE(7, __VA_ARGS__) CASE(8, __VA_ARGS__) CASE(9, __VA_ARGS__) \
    CASE(10, __VA_ARGS__) CASE(11, __VA_ARGS__)
#else
#define MORE(...)
#endif
#define WITH_ROWS(count, ...) \
    switch (count) { \
        CASE(1, __VA_ARGS__) CASE(2, __VA_ARGS__) CASE(3, __VA_ARGS__) CASE(4, __VA_ARGS__) CASE(5, __VA_ARGS__) \
        MORE(__VA_ARGS__) \
        default: EACH(ROWS, __VA_ARGS__) \
    }
#define EACH(count, function, ...) function(count, __VA_ARGS__);
#define UNROLL PRAGMA(GCC unroll 16) /* before a loop over rows or parts, whose number the compiler knows */

typedef float Lane __attribute__((vector_size(BYTES), aligned(4), may_alias)); /* some of the columns */

/* How many of so many rows to take at once: as even shares as there can be. */
INLINE long evenly(long rows) {
    const long shares = (rows + ROWS - 1) / ROWS;
    return rows ? (rows + shares - 1) / shares : 1;
}

INLINE float as_float(int bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x by a polynomial between powers of two; without branches, so that loops around it become vectors. */
INLINE float power(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    float rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    return y * as_float((int)((unsigned)((int)whole + 127) << 23));
}

/* The natural logarithm of a positive number; what is not finite gives no number. */
INLINE float logarithm(float x) {
    int bits;
    memcpy(&bits, &x, sizeof bits);
    int shifted = bits - 0x3f3504f3; /* so that what is left lies around 1 */
    float whole = (float)(shifted >> 23);
    float rest = as_float((shifted & 0x007fffff) + 0x3f3504f3) - 1.0f;
    float square = rest * rest;
    float y = 7.0376836292e-2f;
    y = y * rest - 1.1514610310e-1f;
    y = y * rest + 1.1676998740e-1f;
    y = y * rest - 1.2420140846e-1f;
    y = y * rest + 1.4249322787e-1f;
    y = y * rest - 1.6668057665e-1f;
    y = y * rest + 2.0000714765e-1f;
    y = y * rest - 2.4999993993e-1f;
    y = y * rest + 3.3333331174e-1f;
    y = y * rest * square - whole * 2.12194440e-4f - 0.5f * square;
    return rest + y + whole * 0.693359375f + 0.0f * x;
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + power(-x)); }

/* Small numbers by the first terms of a series, as others would cancel them. */
INLINE float tangent(float x) {
    const float square = x * x, wide = 1.0f - 2.0f / (power(2.0f * x) + 1.0f);
    const float narrow = x * (1.0f + square * (-0.33333333f + square * (0.13333333f - square * 0.053968254f)));
    return square < 0.04f ? narrow : wide;
}
