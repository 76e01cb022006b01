/* What stands before and behind the attention of a decoder layer, each as one call: between two kernels Python takes
   longer than most of them compute. Every number is the one that the kernels give when they are called one by one. */

#include <math.h>
#include <stdlib.h>

#include "kernels.h"

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
    float *normed = malloc(sizeof(float) * rows * l->size);
    if (!normed) {
        fill_nan(heads, rows * l->qkv.n);
        fill_nan(rotated, rows * both * l->head);
        return;
    }
    norm_f32(x, l->norm_in, normed, rows, l->size, l->eps_in, threads);
    multiply(&l->qkv, added, spans, normed, heads, rows, threads);
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
    const int64_t width = l->gate_up.n / 2, count = rows * l->size;
    float *h = malloc(sizeof(float) * rows * (2 * l->size + 3 * width));
    if (!h) {
        fill_nan(out, count);
        return;
    }
    float *normed = h + count, *both = normed + count, *gated = both + 2 * rows * width;
    multiply(&l->out, added ? added + 1 : NULL, spans, mixed, h, rows, threads);
    add(x, h, count);
    norm_f32(h, l->norm_out, normed, rows, l->size, l->eps_out, threads);
    multiply(&l->gate_up, added ? added + 2 : NULL, spans, normed, both, rows, threads);
    gate_f32(both, gated, rows, width, threads);
    multiply(&l->down, added ? added + 3 : NULL, spans, gated, out, rows, threads);
    add(h, out, count);
    free(h);
}
