/* Products of fp32 rows with weights of 8 bits in groups of GROUP, each with a scale and a base: w = scale · q + base.

   Rows are rounded to 16 bits of their own largest number, and a group's products are summed as whole numbers. A lane is
   a row, as in products.c. */

#include <omp.h>

#include "kernels.h"
#include "vectors.h"

#define GROUP 32
#define PAIRS (GROUP / 2)
#define ROWS (WIDE * LANES)
#define LINE 16 /* pairs in a cache line */
#define LARGEST 32767
#define ROUNDER 12582912.0f /* 3 · 2²²: added to a number below 2²², it leaves no place for a fraction */
#define SMALLEST 1e-30f /* a row of smaller numbers counts as zero */
typedef int16_t vec_i16 __attribute__((vector_size(2 * LANES), aligned(2)));

typedef struct {
    const int8_t *q;
    const float *scale, *base; /* [n, groups] */
    int64_t groups;
} grouped;

/* Rows in whole numbers, x = worth · number, in panels like those of products.c: the numbers of a lane in pairs, and the
   sum of each group of them. */
typedef struct {
    int32_t *pairs; /* [groups * PAIRS, width] of each panel, a number in each half */
    float *sums; /* [groups, width] of each panel */
    float *worth; /* [m] */
} whole_rows;

/* A row in whole numbers and the sums of its groups; what it is worth, NaN if it has a NaN or an infinity. */
INLINE float make_whole(const float *x, int64_t k, int64_t groups, int16_t *rounded, float *sums)
{
    vec tops = {0}, nones = {0}; /* nones stay 0 unless a number is no number */
    int64_t t = 0;
    for (; t + LANES <= k; t += LANES) {
        const vec size = (vec)((vec_i32)load(x + t) & INT32_MAX);
        tops = either(size > tops, size, tops);
        nones += size * 0.0f;
    }
    float top = 0, none = sum(nones);
    for (int lane = 0; lane < LANES; lane++)
        top = tops[lane] > top ? tops[lane] : top;
    for (; t < k; t++) {
        top = fabsf(x[t]) > top ? fabsf(x[t]) : top;
        none += x[t] * 0.0f;
    }
    memset(rounded, 0, sizeof(int16_t) * groups * GROUP);
    memset(sums, 0, sizeof(float) * groups);
    if (none != 0)
        return NAN;
    const float factor = top >= SMALLEST ? LARGEST / top : 0.0f;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t end = min(k, (g + 1) * GROUP);
        vec_i32 totals = {0};
        for (t = g * GROUP; t + LANES <= end; t += LANES) {
            const vec nearest = load(x + t) * factor + ROUNDER;
            const vec_i32 number = __builtin_convertvector(nearest - ROUNDER, vec_i32);
            *(vec_i16 *)(rounded + t) = __builtin_convertvector(number, vec_i16);
            totals += number;
        }
        int32_t total = 0;
        for (int lane = 0; lane < LANES; lane++)
            total += totals[lane];
        for (; t < end; t++) {
            rounded[t] = (int16_t)rintf(x[t] * factor);
            total += rounded[t];
        }
        sums[g] = (float)total;
    }
    return top / LARGEST;
}

/* x [m, k] in panels of whole numbers; lanes without a row are zero. room is a thread's, for the rows of a panel. */
INLINE void lay_whole(const float *x, whole_rows out, int64_t m, int64_t k, int64_t groups, int16_t *room)
{
    const int64_t pairs = groups * PAIRS;
#pragma omp for schedule(static)
    for (int64_t first = 0; first < m; first += ROWS) {
        const int64_t live = min(m - first, ROWS), width = live > LANES ? ROWS : LANES;
        int32_t *panel = out.pairs + first * pairs;
        float *sums = out.sums + first * groups, *mine = (float *)(room + ROWS * groups * GROUP);
        memset(panel, 0, sizeof(int32_t) * width * pairs);
        memset(sums, 0, sizeof(float) * width * groups);
        for (int64_t r = 0; r < live; r++) {
            out.worth[first + r] = make_whole(x + (first + r) * k, k, groups, room + r * groups * GROUP, mine);
            for (int64_t g = 0; g < groups; g++)
                sums[g * width + r] = mine[g];
        }
        for (int64_t p0 = 0; p0 < pairs; p0 += LINE)
            for (int64_t r = 0; r < live; r++)
                for (int64_t p = p0; p < p0 + LINE; p++)
                    memcpy(panel + p * width + r, room + (r * pairs + p) * 2, sizeof(int32_t));
    }
}

/* A group of 8 bits, of which `count` numbers are there, as one of 16; what it lacks is zero. */
INLINE void widen(const int8_t *from, int16_t *to, int64_t count)
{
    int64_t t = 0;
#ifdef __AVX2__
    for (; t < GROUP && t + 16 <= count; t += 16)
        _mm256_storeu_si256((__m256i *)(to + t), _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(from + t))));
#endif
    for (; t < GROUP; t++)
        to[t] = t < count ? from[t] : 0;
}

/* Both numbers of each lane's pair times those of one pair, summed. */
INLINE vec_i32 pair_products(vec_i32 lanes, const int16_t *pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
#ifdef __AVX2__
    return (vec_i32)_mm256_madd_epi16((__m256i)lanes, _mm256_set1_epi32(both));
#else
    return (lanes << 16 >> 16) * pair[0] + (lanes >> 16) * pair[1];
#endif
}

/* Columns of out: `cols` rows of weights, from column j on, in a strip of 16 bits [groups, cols, GROUP], against one
   panel, `vectors` wide, of which `live` rows count. The first panel to pass by lays out the strip. */
INLINE void tile_i8(int16_t *strip, grouped w, int64_t j, int64_t k, const int32_t *panel, const float *sums,
                    const float *worth, float *out, int64_t n, int64_t live, const int cols, const int vectors,
                    const int is_first, const float *bias)
{
    const int8_t *q = w.q + j * k;
    vec total[SUMS];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols * vectors; i++)
        total[i] = (vec){0};
    for (int64_t g = 0; g < w.groups; g++) {
        vec_i32 acc[SUMS];
        if (is_first)
            for (int c = 0; c < cols; c++) {
                widen(q + c * k + g * GROUP, strip + c * GROUP, k - g * GROUP);
                if (c % 2 == 0) /* a line of the columns that come next */
                    __builtin_prefetch(q + cols * k + (g * cols + c) * GROUP);
            }
        _Pragma("GCC unroll 16") for (int i = 0; i < cols * vectors; i++)
            acc[i] = (vec_i32){0};
        for (int p = 0; p < PAIRS; p++) {
            vec_i32 mine[WIDE];
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
                mine[v] = (vec_i32)load((const float *)panel + v * LANES);
            _Pragma("GCC unroll 16") for (int c = 0; c < cols; c++)
                _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
                    acc[c * vectors + v] += pair_products(mine[v], strip + c * GROUP + 2 * p);
            panel += vectors * LANES;
        }
        strip += cols * GROUP;
        _Pragma("GCC unroll 16") for (int c = 0; c < cols; c++)
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) {
                const int i = c * vectors + v;
                const int64_t at = (j + c) * w.groups + g;
                total[i] = add_product(total[i], __builtin_convertvector(acc[i], vec), w.scale[at]);
                total[i] = add_product(total[i], load(sums + v * LANES), w.base[at]);
            }
        sums += vectors * LANES;
    }
    float done[SUMS * LANES];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols * vectors; i++)
        *(vec *)(done + i * LANES) = total[i];
    for (int64_t r = 0; r < live; r++)
        _Pragma("GCC unroll 16") for (int c = 0; c < cols; c++)
            out[r * n + c] = done[c * vectors * LANES + r] * worth[r] + (bias ? bias[c] : 0.0f);
}

/* `cols` columns, from column j on, of out for the rows `from` … `to` - 1, in panels up to `vectors` wide. */
INLINE void strip_i8(grouped w, int64_t j, whole_rows x, float *out, int64_t from, int64_t to, int64_t k, int64_t n,
                     const int cols, const int vectors, const float *bias, int16_t *strip)
{
    for (int64_t i = from; i < to; i += ROWS) {
        const int64_t live = min(to - i, ROWS);
        const int32_t *panel = x.pairs + i * w.groups * PAIRS;
        const float *sums = x.sums + i * w.groups, *worth = x.worth + i, *added = bias ? bias + j : NULL;
        float *to_here = out + i * n + j;
        if (vectors == 1)
            tile_i8(strip, w, j, k, panel, sums, worth, to_here, n, live, cols, 1, 1, added);
        else if (live <= LANES)
            tile_i8(strip, w, j, k, panel, sums, worth, to_here, n, live, cols, 1, i == from, added);
        else if (i == from)
            tile_i8(strip, w, j, k, panel, sums, worth, to_here, n, live, cols, WIDE, 1, added);
        else
            tile_i8(strip, w, j, k, panel, sums, worth, to_here, n, live, cols, WIDE, 0, added);
    }
}

/* out [m, n] = x [m, k] times wᵀ, w = q [n, k] · scale + base [n, groups], plus bias [n], which may be absent. */
void product_i8(const int8_t *q, const float *x, float *out, const float *scale, const float *base, const float *bias,
                int64_t m, int64_t n, int64_t k, int threads)
{
    const grouped w = {q, scale, base, (k + GROUP - 1) / GROUP};
    const int64_t width = w.groups * GROUP, rows = (m + LANES - 1) / LANES * LANES;
    const int64_t block = ROWS * (1 + BLOCK_BYTES / (sizeof(int16_t) * ROWS * width));
    const int64_t own = (ROWS + SUMS) * width + 2 * w.groups; /* of each thread, in numbers of 16 bits */
    const int wide = m > LANES, cols = wide ? SUMS / WIDE : SUMS;
    const int64_t full = n / cols;
    int32_t *room = malloc(sizeof(int16_t) * (rows * width + threads * own) + sizeof(float) * (rows * w.groups + m));
    if (!room) { /* no memory: what cannot be computed must not look like a number */
        for (int64_t i = 0; i < m * n; i++)
            out[i] = NAN;
        return;
    }
    float *sums = (float *)(room + rows * width / 2);
    const whole_rows whole = {room, sums, sums + rows * w.groups};
#pragma omp parallel num_threads(threads)
    {
        int16_t *mine = (int16_t *)(whole.worth + m) + omp_get_thread_num() * own, *strip = mine + own - SUMS * width;
        lay_whole(x, whole, m, k, w.groups, mine);
        for (int64_t from = 0; from < m; from += block) {
            const int64_t to = min(from + block, m);
#pragma omp for schedule(static) nowait
            for (int64_t s = 0; s < full + n % cols; s++) {
                if (s >= full)
                    strip_i8(w, n - n % cols + s - full, whole, out, from, to, k, n, 1, WIDE, bias, strip);
                else if (wide)
                    strip_i8(w, s * cols, whole, out, from, to, k, n, SUMS / WIDE, WIDE, bias, strip);
                else
                    strip_i8(w, s * cols, whole, out, from, to, k, n, SUMS, 1, bias, strip);
            }
        }
    }
    free(room);
}
