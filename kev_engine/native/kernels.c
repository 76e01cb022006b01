/* What a step spends its time in beside the products of many rows, for fp32 on any CPU the compiler knows (vector
   extensions): products of few rows, attention of lone tokens, norms, gates.

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
#define COLS 3
#define ROWS 4
#define PANEL 8
#define WORTH_SHARING 65536 /* numbers; fewer are done before a second thread has woken up */
#define SMALLEST 1e-30f /* a row of smaller numbers counts as zero */
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

/* rows × cols of out = x wᵀ: `cols` rows of w against `rows` rows of x, all over k. */
INLINE void tile_f32(const float *w, const float *x, float *out, int64_t k, int64_t n, const int cols, const int rows,
                     const float *bias)
{
    vec acc[COLS][ROWS];
    _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
            acc[c][r] = (vec){0};
    int64_t t = 0;
    for (; t + LANES <= k; t += LANES) {
        vec wide[COLS];
        _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++) {
            wide[c] = load(w + c * k + t);
            __builtin_prefetch(w + (cols + c) * k + t); /* the next columns: too short a piece for the CPU to guess */
        }
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {
            vec mine = load(x + r * k + t);
            _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
                acc[c][r] += wide[c] * mine;
        }
    }
    _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {
            float total = sum(acc[c][r]);
            for (int64_t rest = t; rest < k; rest++)
                total += w[c * k + rest] * x[r * k + rest];
            out[r * n + c] = total + (bias ? bias[c] : 0.0f);
        }
}

/* A block of w stays in the second-level cache while all of x passes by, a panel of x in the first. TILE(j, i, cols,
   rows) computes the columns from j on for the rows from i on. */
#define WALK(TILE, COLS, BLOCK)                                                                                       \
    {                                                                                                                 \
        const int64_t blocks = (n + BLOCK - 1) / BLOCK;                                                               \
        _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t b = 0; b < blocks; b++)        \
        {                                                                                                             \
            int64_t end = b * BLOCK + BLOCK < n ? b * BLOCK + BLOCK : n;                                              \
            for (int64_t p = 0; p < m; p += PANEL) {                                                                  \
                int64_t last = p + PANEL < m ? p + PANEL : m;                                                         \
                for (int64_t j = b * BLOCK, width; j < end; j += width) {                                             \
                    width = end - j >= COLS ? COLS : 1;                                                               \
                    for (int64_t i = p, height; i < last; i += height) {                                              \
                        height = last - i >= ROWS ? ROWS : 1;                                                         \
                        if (width == COLS && height == ROWS)                                                          \
                            TILE(j, i, COLS, ROWS);                                                                   \
                        else if (width == COLS)                                                                       \
                            TILE(j, i, COLS, 1);                                                                      \
                        else if (height == ROWS)                                                                      \
                            TILE(j, i, 1, ROWS);                                                                      \
                        else                                                                                          \
                            TILE(j, i, 1, 1);                                                                         \
                    }                                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

/* out [m, n] = x [m, k] times wᵀ (w [n, k]), plus bias [n], which may be absent. */
void product_f32(const float *w, const float *x, float *out, const float *bias, int64_t m, int64_t n, int64_t k,
                 int threads)
{
#define AT(j, i, cols, rows) \
    tile_f32(w + (j) * k, x + (i) * k, out + (i) * n + (j), k, n, cols, rows, bias ? bias + (j) : NULL)
    WALK(AT, COLS, 48)
#undef AT
}

/* Weights of 8 bits in groups of GROUP, each with a scale and a base (w = scale · q + base), against rows of 16 bits: a
   group's products are summed as whole numbers, which no order can change. */
#define GROUP 32
#define COLS_I8 2 /* a sum of two products needs a register of its own before it is added */
#define LARGEST 32767

/* A row of x in whole numbers: x = worth · rounded, and the sum of each group of them. */
typedef struct {
    int16_t *rounded;
    float *sums, *worth;
} whole_rows;

INLINE void tile_i8(const int8_t *w, whole_rows x, float *out, int64_t k, int64_t n, const int cols, const int rows,
                    const float *scale, const float *base, const float *bias)
{
    const int64_t groups = (k + GROUP - 1) / GROUP, full = k / GROUP;
    vec acc[COLS_I8][ROWS];
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
    float total[COLS_I8][ROWS] = {{0}};
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
        float top = 0, all = 0;
        for (int64_t t = 0; t < k; t++) {
            float size = fabsf(mine[t]);
            top = size > top ? size : top;
            all += size * 0.0f; /* stays 0 unless a number is no number */
        }
        float factor = all == 0 && top >= SMALLEST ? LARGEST / top : 0.0f;
        out.worth[r] = all == 0 ? top / LARGEST : NAN;
        for (int64_t t = 0; t < k; t++)
            out.rounded[r * k + t] = all == 0 ? (int16_t)(int32_t)rintf(mine[t] * factor) : 0;
        for (int64_t g = 0; g < groups; g++) {
            int32_t total = 0;
            for (int64_t t = g * GROUP; t < k && t < (g + 1) * GROUP; t++)
                total += out.rounded[r * k + t];
            out.sums[r * groups + g] = (float)total;
        }
    }
}

/* out [m, n] = x [m, k] times wᵀ, w = q [n, k] · scale + base [n, groups], plus bias [n], which may be absent. rounded
   [m, k], sums [m, groups] and worth [m] are room for x in whole numbers. */
void product_i8(const int8_t *w, const float *x, float *out, const float *scale, const float *base, const float *bias,
                int16_t *rounded, float *sums, float *worth, int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t groups = (k + GROUP - 1) / GROUP;
    whole_rows whole = {rounded, sums, worth};
    make_whole(x, whole, m, k, threads);
#define AT(j, i, cols, rows)                                                                                          \
    tile_i8(w + (j) * k, (whole_rows){rounded + (i) * k, sums + (i) * groups, worth + (i)}, out + (i) * n + (j), k, n, \
            cols, rows, scale + (j) * groups, base + (j) * groups, bias ? bias + (j) : NULL)
    WALK(AT, COLS_I8, 192)
#undef AT
}

/* Each row's adapter: y += (x a) b over the columns spans[2 r] … spans[2 r + 1] - 1 of the stack, a multiple of LANES, and
   nothing where there are none; no other column is read. x [rows, k], a [k, columns], b [columns, n], y [rows, n], rows of
   x, a and y that many numbers apart. */
void adapt_f32(const float *x, const float *a, const float *b, float *y, const int64_t *spans, int64_t rows, int64_t k,
               int64_t n, int64_t x_stride, int64_t a_stride, int64_t y_stride, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * (k + n) > WORTH_SHARING) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = spans[2 * r]; c < spans[2 * r + 1]; c += LANES) {
            const float *mine = x + r * x_stride, *from = a + c;
            float *out = y + r * y_stride;
            vec parts[4] = {{0}, {0}, {0}, {0}};
            int64_t t = 0;
            for (; t + 4 <= k; t += 4)
                _Pragma("GCC unroll 4") for (int u = 0; u < 4; u++)
                    parts[u] += load(from + (t + u) * a_stride) * mine[t + u];
            for (; t < k; t++)
                parts[0] += load(from + t * a_stride) * mine[t];
            vec hidden = (parts[0] + parts[1]) + (parts[2] + parts[3]);
            const float *to = b + c * n;
            for (t = 0; t + LANES <= n; t += LANES) {
                vec total = load(out + t);
                _Pragma("GCC unroll 8") for (int u = 0; u < LANES; u++)
                    total += load(to + u * n + t) * hidden[u];
                *(vec *)(out + t) = total;
            }
            for (; t < n; t++)
                for (int u = 0; u < LANES; u++)
                    out[t] += to[u * n + t] * hidden[u];
        }
}

/* eˣ for x ≤ 0: 2ⁿ · 2ᶠ with n + f = x log₂ e, the second factor by its series to the 7th power. */
INLINE vec exp_below(vec x)
{
    const vec lowest = (vec){0} - 87.0f;
    vec_i32 above = x > lowest;
    x = (vec)((above & (vec_i32)x) | (~above & (vec_i32)lowest));
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

/* Attention of one new token a sequence. query and out [S, Hkv, G, D]; keys and values: head h of slot t begins at
   h * head_stride + t * slot_stride; sequence s reads slots[cu[s]] … slots[cu[s + 1] - 1], all of them and no other. */
void attend_f32(const float *query, const float *keys, const float *values, float *out, const int64_t *slots,
                const int64_t *cu, int64_t sequences, int64_t kv_heads, int64_t groups, int64_t size,
                int64_t head_stride, int64_t slot_stride, float scale, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < sequences * kv_heads; task++) {
        int64_t s = task / kv_heads, h = task % kv_heads, n = cu[s + 1] - cu[s];
        int64_t padded = (n + LANES - 1) / LANES * LANES;
        const int64_t *mine = slots + cu[s];
        const float *k = keys + h * head_stride, *v = values + h * head_stride;
        const float *q = query + task * groups * size;
        float *o = out + task * groups * size;
        float *scores = malloc(sizeof(float) * padded * groups);
        if (!scores) { /* no memory: what cannot be computed must not look like a number */
            for (int64_t t = 0; t < groups * size; t++)
                o[t] = NAN;
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            const float *row = k + mine[j] * slot_stride;
            for (int64_t g = 0; g < groups; g++) {
                vec acc = (vec){0};
                int64_t t = 0;
                for (; t + LANES <= size; t += LANES)
                    acc += load(q + g * size + t) * load(row + t);
                float total = sum(acc);
                for (; t < size; t++)
                    total += q[g * size + t] * row[t];
                scores[g * padded + j] = total * scale;
            }
        }
        for (int64_t g = 0; g < groups; g++) {
            float *line = scores + g * padded, top = line[0], total = 0;
            for (int64_t j = 1; j < n; j++)
                top = line[j] > top || line[j] != line[j] ? line[j] : top; /* a NaN stays */
            for (int64_t j = n; j < padded; j++)
                line[j] = -INFINITY;
            vec sums = (vec){0};
            for (int64_t j = 0; j < padded; j += LANES) {
                vec e = exp_below(load(line + j) - top);
                if (j + LANES > n)
                    for (int64_t lane = n - j; lane < LANES; lane++)
                        e[lane] = 0;
                sums += e;
                *(vec *)(line + j) = e;
            }
            total = sum(sums);
            if (top - top != 0) /* NaN or infinite: the row has no softmax */
                total = NAN;
            for (int64_t j = 0; j < n; j++)
                line[j] /= total;
        }
        memset(o, 0, sizeof(float) * groups * size);
        for (int64_t j = 0; j < n; j++) {
            const float *row = v + mine[j] * slot_stride;
            for (int64_t g = 0; g < groups; g++) {
                float weight = scores[g * padded + j];
                int64_t t = 0;
                for (; t + LANES <= size; t += LANES)
                    *(vec *)(o + g * size + t) = load(o + g * size + t) + load(row + t) * weight;
                for (; t < size; t++)
                    o[g * size + t] += row[t] * weight;
            }
        }
        free(scores);
    }
}

/* out = x / √(mean x² + eps) · weight, for each of `rows` rows of `size` numbers. */
void norm_f32(const float *x, const float *weight, float *out, int64_t rows, int64_t size, float eps, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * size > WORTH_SHARING) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *mine = x + r * size;
        vec sums = (vec){0};
        int64_t t = 0;
        for (; t + LANES <= size; t += LANES)
            sums += load(mine + t) * load(mine + t);
        float total = sum(sums);
        for (; t < size; t++)
            total += mine[t] * mine[t];
        float factor = 1.0f / sqrtf(total / size + eps);
        for (t = 0; t < size; t++)
            out[r * size + t] = mine[t] * factor * weight[t];
    }
}

/* g · sigmoid(g) · u, by e to the power of −|g|: 1 / (1 + e) is sigmoid of |g|, e times that of −|g|. */
INLINE vec gated(vec g, vec u)
{
    vec_i32 below = g < 0.0f;
    vec size = (vec)((below & (vec_i32)-g) | (~below & (vec_i32)g));
    vec e = (vec)((vec_i32)(size < 87.0f) & (vec_i32)exp_below(-size));
    vec above = 1.0f / (1.0f + e);
    return g * (vec)((below & (vec_i32)(e * above)) | (~below & (vec_i32)above)) * u;
}

/* out [rows, size] = gated(both[:, :size], both[:, size:]), both [rows, 2 * size]. */
void gate_f32(const float *both, float *out, int64_t rows, int64_t size, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * size > WORTH_SHARING) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *g = both + 2 * r * size, *u = g + size;
        int64_t t = 0;
        for (; t + LANES <= size; t += LANES)
            *(vec *)(out + r * size + t) = gated(load(g + t), load(u + t));
        for (; t < size; t++)
            out[r * size + t] = gated((vec){0} + g[t], (vec){0} + u[t])[0];
    }
}
