/* Vectors of eight floats on any CPU the compiler knows, and what all kernels have in common.

   Every number of a result is summed in an order that depends on its own row and column alone: what else is in the step,
   and how many threads share the work, changes no bit of it. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define LANES 8
#define WIDE 2 /* vectors of rows that pass by together, if there are so many */
#define SUMS 12 /* vectors of sums that fit the registers beside what they are made of */
#define BLOCK_BYTES (1 << 20) /* of rows that pass by while a strip of weights stays in the first-level cache */
#define WORTH_SHARING 65536 /* numbers; fewer are done before a second thread has woken up */
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t vec_i32 __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *from) { return *(const vec *)from; }

INLINE float sum(vec v)
{
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    return v[0] + v[1];
}

INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

/* a + b · c, rounded once or twice, but wherever it stands alike: left alone, GCC decides it for each sum anew. */
INLINE vec add_product(vec a, vec b, float c)
{
    vec wide = {c, c, c, c, c, c, c, c};
#ifdef __FMA__
    return (vec)_mm256_fmadd_ps((__m256)b, (__m256)wide, (__m256)a);
#else
    return a + b * wide;
#endif
}

/* Where the mask is set, a; elsewhere b. */
INLINE vec either(vec_i32 mask, vec a, vec b) { return (vec)((mask & (vec_i32)a) | (~mask & (vec_i32)b)); }

/* eˣ for x ≤ 0: 2ⁿ · 2ᶠ with n + f = x log₂ e, the second factor by its series to the 7th power. */
INLINE vec exp_below(vec x)
{
    const vec lowest = (vec){0} - 87.0f;
    vec_i32 above = x > lowest;
    x = either(above, x, lowest);
    vec scaled = x * 1.44269504088896341f;
    vec_i32 whole = __builtin_convertvector(scaled - 0.5f, vec_i32);
    vec f = (scaled - __builtin_convertvector(whole, vec)) * 0.693147180559945f;
    vec p = (vec){0} + 1.0f / 5040;
    p = p * f + 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    return p * (vec)((whole + 127) << 23);
}
