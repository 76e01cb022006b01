/* Attention of many new tokens of one sequence, by blocks of keys with a running softmax (Milakov and Gimelshein 2018,
   arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). A lane is a query, so no sum is ever shared.

   Who reads whom is said in isolation/mask.py; this carries it out for one sequence, and is held to the dense oracle. */

#include "vectors.h"

#define COLS 6 /* their sums fit the registers beside what they are made of */
#define KEYS (COLS * 10) /* whose scores are held at once */
#define FLOOR -1e30f /* the greatest score before the first is known */
#define ROWS (WIDE * LANES)

/* to[c] += Σ over t of of[t] · by[c * column + t * step], for `cols` columns; `of` and `to` are ROWS wide. */
INLINE void add_columns(const float *of, const float *by, float *to, int64_t terms, int64_t column, int64_t step,
                        const int cols)
{
    vec acc[COLS * WIDE];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols * WIDE; i++)
        acc[i] = load(to + i * LANES);
    for (int64_t t = 0; t < terms; t++)
        _Pragma("GCC unroll 8") for (int c = 0; c < cols; c++)
            _Pragma("GCC unroll 2") for (int v = 0; v < WIDE; v++)
                acc[c * WIDE + v] =
                    add_product(acc[c * WIDE + v], load(of + (t * WIDE + v) * LANES), by[c * column + t * step]);
    _Pragma("GCC unroll 16") for (int i = 0; i < cols * WIDE; i++)
        *(vec *)(to + i * LANES) = acc[i];
}

INLINE void add_all(const float *of, const float *by, float *to, int64_t columns, int64_t terms, int64_t column,
                    int64_t step)
{
    int64_t c = 0;
    for (; c + COLS <= columns; c += COLS)
        add_columns(of, by + c * column, to + c * ROWS, terms, column, step, COLS);
    for (; c + COLS / 2 <= columns; c += COLS / 2)
        add_columns(of, by + c * column, to + c * ROWS, terms, column, step, COLS / 2);
    for (; c < columns; c++)
        add_columns(of, by + c * column, to + c * ROWS, terms, column, step, 1);
}

/* What a panel of queries knows of the keys so far, ROWS wide each. */
typedef struct {
    float top[ROWS], total[ROWS], none[ROWS]; /* none stays 0 unless a score is no number */
} softmax;

/* Scores [keys, ROWS] become weights, by what is the greatest score now; `mixed` [size, ROWS] follows. Lane r reads the
   keys first[r] … last[r] of those that begin at `from`, all of them if `all` says so; the others weigh exactly nothing. */
INLINE void weigh(float *scores, int64_t keys, int64_t from, const int32_t *first, const int32_t *last, softmax *state,
                  float *mixed, int64_t size, const int all)
{
    for (int v = 0; v < WIDE; v++) {
        const vec_i32 begin = *(const vec_i32 *)(first + v * LANES), end = *(const vec_i32 *)(last + v * LANES);
        const vec before = load(state->top + v * LANES), floor = (vec){0} + FLOOR;
        vec top = before, none = load(state->none + v * LANES);
        for (int64_t j = 0; j < keys; j++) {
            const vec_i32 at = (vec_i32){0} + (int32_t)(from + j), reads = all ? ~(vec_i32){0} : (at >= begin) & (at <= end);
            vec *mine = (vec *)(scores + j * ROWS + v * LANES);
            none += either(reads, *mine * 0.0f, (vec){0});
            *mine = either(reads, *mine, floor);
            top = either(*mine > top, *mine, top);
        }
        const vec factor = exp_below(before - top);
        vec total = load(state->total + v * LANES) * factor;
        for (int64_t j = 0; j < keys; j++) {
            const vec_i32 at = (vec_i32){0} + (int32_t)(from + j), reads = all ? ~(vec_i32){0} : (at >= begin) & (at <= end);
            vec *mine = (vec *)(scores + j * ROWS + v * LANES);
            *mine = either(reads, exp_below(*mine - top), (vec){0});
            total += *mine;
        }
        for (int64_t d = 0; d < size; d++)
            *(vec *)(mixed + d * ROWS + v * LANES) *= factor;
        *(vec *)(state->top + v * LANES) = top;
        *(vec *)(state->total + v * LANES) = total;
        *(vec *)(state->none + v * LANES) = none;
    }
}

/* query and out [Q, H · G, size], keys and values [K, H, size]; query i reads the keys up to K - Q + i, and of those the
   last `window` (K if there is none). Strides in numbers; those of a head lie side by side. */
void prefill_f32(const float *query, const float *keys, const float *values, float *out, int64_t num_queries,
                 int64_t num_keys, int64_t kv_heads, int64_t groups, int64_t size, int64_t query_stride,
                 int64_t query_head_stride, int64_t key_stride, int64_t key_head_stride, int64_t window, float scale,
                 int threads)
{
    const int64_t heads = kv_heads * groups, panels = (num_queries + ROWS - 1) / ROWS, past = num_keys - num_queries;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < heads * panels; task++) {
        /* The longest first: the last to finish should be short. */
        const int64_t h = task % heads, q = (panels - 1 - task / heads) * ROWS, live = min(num_queries - q, ROWS);
        const float *k = keys + h / groups * key_head_stride, *v = values + h / groups * key_head_stride;
        float *room = calloc((2 * size + KEYS) * ROWS, sizeof(float)), *mixed = room + size * ROWS;
        float *scores = mixed + size * ROWS;
        if (!room) { /* no memory: what cannot be computed must not look like a number */
            for (int64_t r = 0; r < live * size; r++)
                out[((q + r / size) * heads + h) * size + r % size] = NAN;
            continue;
        }
        softmax state = {{0}, {0}, {0}};
        int32_t first[ROWS] __attribute__((aligned(32))), last[ROWS] __attribute__((aligned(32)));
        for (int64_t r = 0; r < ROWS; r++) { /* a lane without a query does as the last one */
            const int64_t i = q + min(r, live - 1);
            last[r] = (int32_t)(past + i);
            first[r] = (int32_t)(past + i + 1 > window ? past + i + 1 - window : 0);
            state.top[r] = FLOOR;
            for (int64_t t = 0; t < size; t++)
                room[t * ROWS + r] = query[i * query_stride + h * query_head_stride + t] * scale;
        }
        for (int64_t from = first[0]; from <= last[live - 1]; from += KEYS) {
            const int64_t count = min(KEYS, last[live - 1] + 1 - from);
            memset(scores, 0, sizeof(float) * count * ROWS);
            add_all(room, k + from * key_stride, scores, count, size, key_stride, 1);
            if (from >= first[live - 1] && from + count <= last[0] + 1)
                weigh(scores, count, from, first, last, &state, mixed, size, 1);
            else
                weigh(scores, count, from, first, last, &state, mixed, size, 0);
            add_all(scores, v + from * key_stride, mixed, size, count, 1, key_stride);
        }
        for (int64_t r = 0; r < live; r++)
            for (int64_t t = 0; t < size; t++)
                out[((q + r) * heads + h) * size + t] = mixed[t * ROWS + r] / (state.total[r] + state.none[r]);
        free(room);
    }
}
