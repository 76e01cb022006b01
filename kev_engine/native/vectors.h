/* Vectors of eight floats on any CPU the compiler knows, and what all kernels have in common.

   Every number of a result is summed in an order that depends on its own row and column alone: what else is in the step,
   and how many threads share the work, changes no bit of it. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8
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
