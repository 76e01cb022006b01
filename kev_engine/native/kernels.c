/* What a step spends its time in beside products: attention of lone tokens, adapters, norms, rotations,
   gates. */

#include "kernels.h"
#include "vectors.h"

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

/* Attention of one new token a sequence. query [S, Hkv, G, D], its sequences query_stride numbers apart; out likewise, but
   in one piece. Head h of slot t of keys and values begins at h * head_stride + t * slot_stride; sequence s reads
   slots[cu[s]] … slots[cu[s + 1] - 1], all of them and no other. */
void attend_f32(const float *query, const float *keys, const float *values, float *out, const int64_t *slots,
                const int64_t *cu, int64_t sequences, int64_t kv_heads, int64_t groups, int64_t size,
                int64_t query_stride, int64_t head_stride, int64_t slot_stride, float scale, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < sequences * kv_heads; task++) {
        int64_t s = task / kv_heads, h = task % kv_heads, n = cu[s + 1] - cu[s];
        int64_t padded = (n + LANES - 1) / LANES * LANES;
        const int64_t *mine = slots + cu[s];
        const float *k = keys + h * head_stride, *v = values + h * head_stride;
        const float *q = query + s * query_stride + h * groups * size;
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

/* keys[slots[t]] = key[t] and values likewise, for each of `heads` heads of `size` numbers. */
void store_f32(const float *key, const float *value, float *keys, float *values, const int64_t *slots, int64_t tokens,
               int64_t heads, int64_t size, int64_t key_stride, int64_t key_head_stride, int64_t value_stride,
               int64_t value_head_stride, int64_t slot_stride, int64_t head_stride)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t to = slots[t] * slot_stride + h * head_stride;
            memcpy(keys + to, key + t * key_stride + h * key_head_stride, sizeof(float) * size);
            memcpy(values + to, value + t * value_stride + h * value_head_stride, sizeof(float) * size);
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

/* out = each of the `heads` heads of a row of x, `size` numbers, halves rotated by cos and sin [rows, size]; rows of x lie
   `stride` numbers apart. */
void rotate_f32(const float *x, const float *cosine, const float *sine, float *out, int64_t rows, int64_t heads,
                int64_t size, int64_t stride, int threads)
{
    const int64_t half = size / 2;
#pragma omp parallel for num_threads(threads) if (rows * heads * size > WORTH_SHARING) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *c = cosine + r * size, *s = sine + r * size;
        for (int64_t h = 0; h < heads; h++) {
            const float *low = x + r * stride + h * size, *high = low + half;
            float *to = out + (r * heads + h) * size;
            int64_t t = 0;
            for (; t + LANES <= half; t += LANES) {
                *(vec *)(to + t) = load(low + t) * load(c + t) - load(high + t) * load(s + t);
                *(vec *)(to + half + t) = load(high + t) * load(c + half + t) + load(low + t) * load(s + half + t);
            }
            for (; t < half; t++) {
                to[t] = low[t] * c[t] - high[t] * s[t];
                to[half + t] = high[t] * c[half + t] + low[t] * s[half + t];
            }
        }
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
