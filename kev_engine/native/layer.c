/* What stands before and behind the attention of a decoder layer, each as one call, and the whole layer where its rows are
   lone tokens: between two kernels Python takes longer than most of them compute. Every number is the one that the kernels
   give when they are called one by one. */

#include "kernels.h"
#include "vectors.h"

#define AT_ONCE 256 /* rows that pass through a feed-forward together, so that what it holds of them stays in a cache */

/* A matrix product's weights: w [n, k] in fp32, or, where there is a scale, in whole numbers of 8 bits. */
typedef struct {
    const void *w;
    const float *scale, *base, *bias;
    int64_t n, k;
} matrix;

/* The adapters of some columns of a product's output: a [k, columns], its rows a_stride numbers apart, b [columns, n]. */
typedef struct {
    const float *a, *b;
    int64_t a_stride, first, n;
} adapted;

typedef struct {
    const adapted *parts;
    int64_t count;
} adapters;

/* q_norm and k_norm, of a head each, may be absent; biases likewise. */
typedef struct {
    matrix qkv, out, gate_up, down;
    const float *norm_in, *norm_out, *q_norm, *k_norm;
    int64_t size, query_heads, kv_heads, head;
    float eps_in, eps_out, eps_q, eps_k;
} layer;

/* out = x wᵀ + bias, and what each row's adapter adds to it. */
static void multiply(const matrix *w, const adapters *added, const int64_t *spans, const float *x, float *out,
                     int64_t rows, int threads)
{
    if (w->scale)
        product_i8(w->w, x, out, w->scale, w->base, w->bias, rows, w->n, w->k, threads);
    else
        product_f32(w->w, x, out, w->bias, rows, w->n, w->k, threads);
    for (int64_t i = 0; added && i < added->count; i++) {
        const adapted *part = added->parts + i;
        adapt_f32(x, part->a, part->b, out + part->first, spans, rows, w->k, part->n, w->k, part->a_stride, w->n, threads);
    }
}

static void add(const float *x, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = x[i] + out[i];
}

/* No memory: what cannot be computed must not look like a number. */
static void fill_nan(float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = NAN;
}

/* heads [rows, query + 2 kv, head] = the products of the norm of x [rows, size]; rotated = the query and key heads of it,
   under their norms and rotated by cosine and sine [rows, head]. `added`: the adapters of the four products, or NULL. */
void enter_layer(const layer *l, const adapters *added, const int64_t *spans, const float *x, const float *cosine,
                 const float *sine, float *heads, float *rotated, int64_t rows, int threads)
{
    const int64_t both = l->query_heads + l->kv_heads;
    float *normed = malloc(sizeof(float) * min(rows, AT_ONCE) * l->size);
    if (!normed) {
        fill_nan(heads, rows * l->qkv.n);
        fill_nan(rotated, rows * both * l->head);
        return;
    }
    for (int64_t r = 0; r < rows; r += AT_ONCE) {
        const int64_t some = min(rows - r, AT_ONCE);
        norm_f32(x + r * l->size, l->norm_in, normed, some, l->size, l->eps_in, threads);
        multiply(&l->qkv, added, spans + (added ? 2 * r : 0), normed, heads + r * l->qkv.n, some, threads);
    }
    free(normed);
    for (int64_t r = 0; l->q_norm && r < rows; r++) {
        float *query = heads + r * l->qkv.n, *key = query + l->query_heads * l->head;
        norm_f32(query, l->q_norm, query, l->query_heads, l->head, l->eps_q, threads);
        norm_f32(key, l->k_norm, key, l->kv_heads, l->head, l->eps_k, threads);
    }
    rotate_f32(heads, cosine, sine, rotated, rows, both, l->head, l->qkv.n, threads);
}

/* h = x + mixed · out; out = h + down(gated(gate_up(norm h))), all [rows, size]; mixed [rows, query heads · head]. */
void leave_layer(const layer *l, const adapters *added, const int64_t *spans, const float *x, const float *mixed,
                 float *out, int64_t rows, int threads)
{
    const int64_t width = l->gate_up.n / 2, most = min(rows, AT_ONCE);
    float *h = malloc(sizeof(float) * most * (2 * l->size + 3 * width));
    if (!h) {
        fill_nan(out, rows * l->size);
        return;
    }
    float *normed = h + most * l->size, *both = normed + most * l->size, *gated = both + 2 * most * width;
    for (int64_t r = 0; r < rows; r += AT_ONCE) {
        const int64_t some = min(rows - r, AT_ONCE), *theirs = spans + (added ? 2 * r : 0);
        float *to = out + r * l->size;
        multiply(&l->out, added ? added + 1 : NULL, theirs, mixed + r * l->out.k, h, some, threads);
        add(x + r * l->size, h, some * l->size);
        norm_f32(h, l->norm_out, normed, some, l->size, l->eps_out, threads);
        multiply(&l->gate_up, added ? added + 2 : NULL, theirs, normed, both, some, threads);
        gate_f32(both, gated, some, width, threads);
        multiply(&l->down, added ? added + 3 : NULL, theirs, gated, to, some, threads);
        add(h, to, some * l->size);
    }
    free(h);
}

/* The whole layer for rows that are each the only new token of their sequence: row r is kept at slot into[r] of keys and
   values, as store_f32 does, and reads what attend_f32 reads by slots and edges. */
void decode_layer(const layer *l, const adapters *added, const int64_t *spans, const float *x, const float *cosine,
                  const float *sine, float *out, float *keys, float *values, const int64_t *into, const int64_t *slots,
                  const int64_t *edges, int64_t head_stride, int64_t slot_stride, float scale, int64_t rows, int threads)
{
    const int64_t both = l->query_heads + l->kv_heads, rotated_width = both * l->head, mixed_width = l->out.k;
    float *heads = malloc(sizeof(float) * rows * (l->qkv.n + rotated_width + mixed_width));
    if (!heads) {
        fill_nan(out, rows * l->size);
        return;
    }
    float *rotated = heads + rows * l->qkv.n, *mixed = rotated + rows * rotated_width;
    enter_layer(l, added, spans, x, cosine, sine, heads, rotated, rows, threads);
    store_f32(rotated + l->query_heads * l->head, heads + rotated_width, keys, values, into, rows, l->kv_heads, l->head,
              rotated_width, l->head, l->qkv.n, l->head, slot_stride, head_stride);
    attend_f32(rotated, keys, values, mixed, slots, edges, rows, l->kv_heads, l->query_heads / l->kv_heads, l->head,
               rotated_width, head_stride, slot_stride, scale, threads);
    leave_layer(l, added, spans, x, mixed, out, rows, threads);
    free(heads);
}
