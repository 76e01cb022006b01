/* Products of fp32 rows with weights in fp32, as torch keeps them.

   A lane is a row of x and a sum runs along its row, so no sum is ever shared, and what is read of w again and again, a
   strip of columns, stays in the first-level cache. */

#include "kernels.h"
#include "vectors.h"

#define LINE 16 /* numbers in a cache line */

/* x [m, k] in panels of WIDE vectors, [k, WIDE * LANES]: a lane is a row. The last is one vector wide if that is enough;
   lanes without a row are zero. */
INLINE void lay_panels(const float *x, float *panels, int64_t m, int64_t k)
{
#pragma omp for schedule(static)
    for (int64_t first = 0; first < m; first += WIDE * LANES) {
        const int64_t live = min(m - first, WIDE * LANES), width = live > LANES ? WIDE * LANES : LANES;
        float *panel = panels + first * k;
        memset(panel, 0, sizeof(float) * width * k);
        for (int64_t t0 = 0; t0 < k; t0 += LINE)
            for (int64_t r = 0; r < live; r++)
                for (int64_t t = t0; t < min(k, t0 + LINE); t++)
                    panel[t * width + r] = x[(first + r) * k + t];
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
    const int64_t block = WIDE * LANES * (1 + BLOCK_BYTES / (sizeof(float) * WIDE * LANES * k));
    const int wide = m > LANES, cols = wide ? SUMS / WIDE : SUMS;
    const int64_t full = n / cols;
    float *panels = malloc(sizeof(float) * ((m + LANES - 1) / LANES * LANES) * k);
    if (!panels) { /* no memory: what cannot be computed must not look like a number */
        for (int64_t i = 0; i < m * n; i++)
            out[i] = NAN;
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        lay_panels(x, panels, m, k);
        for (int64_t from = 0; from < m; from += block) {
            const int64_t to = min(from + block, m);
#pragma omp for schedule(static) nowait
            for (int64_t s = 0; s < full + n % cols; s++) {
                const int64_t j = s < full ? s * cols : n - n % cols + s - full;
                const float *strip = w + j * k, *added = bias ? bias + j : NULL;
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
