/* Products of fp32 rows with weights in fp32 or in grouped whole numbers, weights as torch keeps them.

   A lane is a row of x and a sum runs along its row, so no sum is ever shared, and what is read of w again and again, a
   strip of columns, stays in the first-level cache. */

#include <omp.h>

#include "vectors.h"

#define SUMS 12 /* vectors of sums that fit the registers beside what they are made of */
#define BLOCK_BYTES (1 << 20) /* of x that pass by while a strip of w stays in the first-level cache */
#define LINE 16 /* numbers in a cache line */
#define SMALLEST 1e-30f /* a row of smaller numbers counts as zero */
typedef int16_t vec_i16 __attribute__((vector_size(2 * LANES), aligned(2)));
typedef int8_t vec_i8 __attribute__((vector_size(LANES), aligned(1)));

/* Weights of 8 bits in groups of GROUP, each with a scale and a base (w = scale · q + base). */
#define GROUP 32
#define FEW 16 /* rows; for more, weights in whole numbers are made floats, a strip at a time */
#define COLS_I8 2 /* a sum of two products needs a register of its own before it is added */
#define ROWS_I8 4
#define LARGEST 32767
#define ROUNDER 12582912.0f /* 3 · 2²²: added to a number below 2²², it leaves no place for a fraction */

INLINE vec_i32 whole_of(const int8_t *from)
{
#ifdef __AVX2__ /* GCC takes four instructions more */
    return (vec_i32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
#else
    return __builtin_convertvector(*(const vec_i8 *)from, vec_i32);
#endif
}

typedef struct {
    const int8_t *q;
    const float *scale, *base;
} grouped;

/* Rows of x in whole numbers: x = worth · rounded, and the sum of each group of them. */
typedef struct {
    int16_t *rounded;
    float *sums, *worth;
} whole_rows;

/* x [m, k], or what it is in whole numbers, in panels of WIDE vectors, [k, WIDE * LANES]: a lane is a row. The last is one
   vector wide if that is enough; lanes without a row are zero. */
INLINE void lay_panels(const float *x, const whole_rows *whole, float *panels, int64_t m, int64_t k)
{
#pragma omp for schedule(static)
    for (int64_t first = 0; first < m; first += WIDE * LANES) {
        const int64_t live = min(m - first, WIDE * LANES), width = live > LANES ? WIDE * LANES : LANES;
        float *panel = panels + first * k;
        memset(panel, 0, sizeof(float) * width * k);
        for (int64_t t0 = 0; t0 < k; t0 += LINE)
            for (int64_t r = 0; r < live; r++) {
                const int64_t row = first + r;
                for (int64_t t = t0; t < min(k, t0 + LINE); t++)
                    panel[t * width + r] = whole ? whole->rounded[row * k + t] * whole->worth[row] : x[row * k + t];
            }
    }
}

/* Columns of out = x wᵀ: `cols` rows of w against a panel of x, `vectors` wide, of which `live` rows count. */
INLINE void tile_f32(const float *w, const float *panel, float *out, int64_t k, int64_t n, int64_t live, const int cols,
                     const int vectors, const int ahead, const float *bias)
{
    vec acc[SUMS];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols * vectors; i++)
        acc[i] = (vec){0};
    for (int64_t t = 0; t < k; t++) {
        vec mine[WIDE];
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
            mine[v] = load(panel + (t * vectors + v) * LANES);
        if (ahead && t % LINE < cols) /* the next columns: too short a piece for the CPU to guess */
            __builtin_prefetch(w + (t % LINE + cols) * k + t / LINE * LINE);
        _Pragma("GCC unroll 16") for (int c = 0; c < cols; c++)
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
                acc[c * vectors + v] = add_product(acc[c * vectors + v], mine[v], w[c * k + t]);
    }
    float done[SUMS * LANES];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols * vectors; i++)
        *(vec *)(done + i * LANES) = acc[i];
    for (int64_t r = 0; r < live; r++)
        _Pragma("GCC unroll 16") for (int c = 0; c < cols; c++)
            out[r * n + c] = done[c * vectors * LANES + r] + (bias ? bias[c] : 0.0f);
}

/* A strip of `cols` rows of w against the rows `from` … `to` - 1 of x, in panels up to `vectors` wide. */
INLINE void strip_f32(const float *w, const float *panels, float *out, int64_t from, int64_t to, int64_t k, int64_t n,
                      const int cols, const int vectors, const float *bias)
{
    for (int64_t i = from; i < to; i += WIDE * LANES) {
        const int64_t live = min(to - i, WIDE * LANES);
        if (vectors == 1 || live <= LANES)
            tile_f32(w, panels + i * k, out + i * n, k, n, live, cols, 1, vectors == 1, bias);
        else if (i == from)
            tile_f32(w, panels + i * k, out + i * n, k, n, live, cols, WIDE, 1, bias);
        else
            tile_f32(w, panels + i * k, out + i * n, k, n, live, cols, WIDE, 0, bias);
    }
}

/* `cols` rows of grouped whole numbers, from row j on, as floats. */
INLINE void make_floats(grouped w, float *out, int64_t j, int64_t cols, int64_t k)
{
    const int64_t groups = (k + GROUP - 1) / GROUP;
    for (int64_t c = 0; c < cols; c++)
        for (int64_t g = 0; g < groups; g++) {
            const float scale = w.scale[(j + c) * groups + g], base = w.base[(j + c) * groups + g];
            const int8_t *q = w.q + (j + c) * k + g * GROUP;
            float *to = out + c * k + g * GROUP;
            if (g < k / GROUP)
                _Pragma("GCC unroll 8") for (int t = 0; t < GROUP; t += LANES)
                    *(vec *)(to + t) = __builtin_convertvector(whole_of(q + t), vec) * scale + base;
            else
                for (int64_t t = 0; t < k % GROUP; t++)
                    to[t] = q[t] * scale + base;
        }
}

/* out [m, n] = x wᵀ + bias; w [n, k] floats or, if `whole`, grouped whole numbers, of which each thread makes a strip
   floats at a time. */
INLINE void products(const float *w, const float *x, grouped from_groups, const whole_rows *whole, float *out,
                     const float *bias, int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t room = (m + LANES - 1) / LANES * LANES * k;
    float *panels = malloc(sizeof(float) * (room + (whole ? threads * SUMS * k : 0))), *strips = panels + room;
    if (!panels) { /* no memory: what cannot be computed must not look like a number */
        for (int64_t i = 0; i < m * n; i++)
            out[i] = NAN;
        return;
    }
    const int64_t block = WIDE * LANES * (1 + BLOCK_BYTES / (sizeof(float) * WIDE * LANES * k));
    const int wide = m > LANES, cols = wide ? SUMS / WIDE : SUMS;
    const int64_t full = n / cols;
#pragma omp parallel num_threads(threads)
    {
        float *mine = whole ? strips + omp_get_thread_num() * SUMS * k : NULL;
        lay_panels(x, whole, panels, m, k);
        for (int64_t from = 0; from < m; from += block) {
            const int64_t to = min(from + block, m);
#pragma omp for schedule(static) nowait
            for (int64_t s = 0; s < full + n % cols; s++) {
                const int64_t j = s < full ? s * cols : n - n % cols + s - full;
                const float *strip = whole ? mine : w + j * k, *added = bias ? bias + j : NULL;
                if (whole)
                    make_floats(from_groups, mine, j, s < full ? cols : 1, k);
                if (s >= full)
                    strip_f32(strip, panels, out + j, from, to, k, n, 1, WIDE, added);
                else if (wide)
                    strip_f32(strip, panels, out + j, from, to, k, n, SUMS / WIDE, WIDE, added);
                else
                    strip_f32(strip, panels, out + j, from, to, k, n, SUMS, 1, added);
            }
        }
    }
    free(panels);
}

/* Up to how many rows product_f32 is worth it: on other CPUs the usual library has wider vectors than these. */
int64_t most_rows(void)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return INT64_MAX;
#else
    return 32;
#endif
}

/* out [m, n] = x [m, k] times wᵀ (w [n, k]), plus bias [n], which may be absent. */
void product_f32(const float *w, const float *x, float *out, const float *bias, int64_t m, int64_t n, int64_t k,
                 int threads)
{
    products(w, x, (grouped){0}, NULL, out, bias, m, n, k, threads);
}

/* Few rows, in whole numbers: a group's products are summed as such, which no order can change. */
INLINE void tile_i8(const int8_t *w, whole_rows x, float *out, int64_t k, int64_t n, const int cols, const int rows,
                    const float *scale, const float *base, const float *bias)
{
    const int64_t groups = (k + GROUP - 1) / GROUP, full = k / GROUP;
    vec acc[COLS_I8][ROWS_I8];
    _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
            acc[c][r] = (vec){0};
    int64_t g = 0;
#ifdef __AVX2__
    for (; g < full; g++)
        _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++) {
            const __m128i *from = (const __m128i *)(w + c * k + g * GROUP);
            __builtin_prefetch(w + (cols + c) * k + g * GROUP);
            __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
            __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));
            vec step = (vec)_mm256_broadcast_ss(scale + c * groups + g);
            _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {
                const __m256i *mine = (const __m256i *)(x.rounded + r * k + g * GROUP);
                __m256i both = _mm256_add_epi32(_mm256_madd_epi16(low, _mm256_loadu_si256(mine)),
                                                _mm256_madd_epi16(high, _mm256_loadu_si256(mine + 1)));
                acc[c][r] += (vec)_mm256_cvtepi32_ps(both) * step;
            }
        }
#endif
    float total[COLS_I8][ROWS_I8] = {{0}};
    for (; g < groups; g++) /* the last, if it is not full; all, on another kind of CPU */
        for (int c = 0; c < cols; c++)
            for (int r = 0; r < rows; r++) {
                int32_t whole = 0;
                for (int64_t t = g * GROUP; t < k && t < (g + 1) * GROUP; t++)
                    whole += (int32_t)w[c * k + t] * x.rounded[r * k + t];
                total[c][r] += (float)whole * scale[c * groups + g];
            }
    for (g = 0; g + LANES <= groups; g += LANES)
        _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
            _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
                acc[c][r] += load(base + c * groups + g) * load(x.sums + r * groups + g);
    _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {
            float whole = total[c][r] + sum(acc[c][r]);
            for (int64_t rest = g; rest < groups; rest++)
                whole += base[c * groups + rest] * x.sums[r * groups + rest];
            out[r * n + c] = whole * x.worth[r] + (bias ? bias[c] : 0.0f);
        }
}

/* Each row of x [m, k] in whole numbers; one that has a NaN or an infinity is worth NaN, and so is all it gives. */
INLINE void make_whole(const float *x, whole_rows out, int64_t m, int64_t k, int threads)
{
    const int64_t groups = (k + GROUP - 1) / GROUP;
#pragma omp parallel for num_threads(threads) if (m * k > WORTH_SHARING) schedule(static)
    for (int64_t r = 0; r < m; r++) {
        const float *mine = x + r * k;
        int16_t *rounded = out.rounded + r * k;
        vec tops = {0}, nones = {0}; /* stay 0 unless a number is no number */
        int64_t t = 0;
        for (; t + LANES <= k; t += LANES) {
            vec size = (vec)((vec_i32)load(mine + t) & INT32_MAX);
            vec_i32 above = size > tops;
            tops = (vec)((above & (vec_i32)size) | (~above & (vec_i32)tops));
            nones += size * 0.0f;
        }
        float top = 0, none = sum(nones);
        for (int lane = 0; lane < LANES; lane++)
            top = tops[lane] > top ? tops[lane] : top;
        for (; t < k; t++) {
            top = fabsf(mine[t]) > top ? fabsf(mine[t]) : top;
            none += mine[t] * 0.0f;
        }
        const float factor = top >= SMALLEST ? LARGEST / top : 0.0f;
        out.worth[r] = none == 0 ? top / LARGEST : NAN;
        if (none != 0) {
            memset(rounded, 0, sizeof(int16_t) * k);
            memset(out.sums + r * groups, 0, sizeof(float) * groups);
            continue;
        }
        for (int64_t g = 0; g < groups; g++) {
            const int64_t end = min(k, (g + 1) * GROUP);
            vec_i32 totals = {0};
            for (t = g * GROUP; t + LANES <= end; t += LANES) {
                vec whole = load(mine + t) * factor + ROUNDER; /* to the nearest */
                vec_i32 number = __builtin_convertvector(whole - ROUNDER, vec_i32);
                *(vec_i16 *)(rounded + t) = __builtin_convertvector(number, vec_i16);
                totals += number;
            }
            int32_t total = 0;
            for (int lane = 0; lane < LANES; lane++)
                total += totals[lane];
            for (; t < end; t++) {
                rounded[t] = (int16_t)rintf(mine[t] * factor);
                total += rounded[t];
            }
            out.sums[r * groups + g] = (float)total;
        }
    }
}

/* out [m, n] = x [m, k] times wᵀ, w = q [n, k] · scale + base [n, groups], plus bias [n], which may be absent. rounded
   [m, k], sums [m, groups] and worth [m] are room for x in whole numbers. */
void product_i8(const int8_t *w, const float *x, float *out, const float *scale, const float *base, const float *bias,
                int16_t *rounded, float *sums, float *worth, int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t groups = (k + GROUP - 1) / GROUP, cols = n - n % COLS_I8, rows = m - m % ROWS_I8;
    whole_rows whole = {rounded, sums, worth};
    make_whole(x, whole, m, k, threads);
    if (m > FEW) {
        products(NULL, NULL, (grouped){w, scale, base}, &whole, out, bias, m, n, k, threads);
        return;
    }
#define TILE(i, cols, rows)                                                                                           \
    tile_i8(w + j * k, (whole_rows){rounded + (i) * k, sums + (i) * groups, worth + (i)}, out + (i) * n + j, k, n, cols, \
            rows, scale + j * groups, base + j * groups, bias ? bias + j : NULL)
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t s = 0; s < n / COLS_I8 + n % COLS_I8; s++) {
        const int64_t j = s * COLS_I8 < cols ? s * COLS_I8 : cols;
        for (int64_t i = 0; i < rows; i += ROWS_I8)
            if (j < cols)
                TILE(i, COLS_I8, ROWS_I8);
            else
                TILE(i, 1, ROWS_I8);
        for (int64_t i = rows; i < m; i++)
            if (j < cols)
                TILE(i, COLS_I8, 1);
            else
                TILE(i, 1, 1);
    }
#undef TILE
}
