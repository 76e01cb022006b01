/* The kernels that layer.c puts together; each is described where it is defined, and held to what stands here. */

#include <stdint.h>

void product_f32(const float *w, const float *x, float *out, const float *bias, int64_t m, int64_t n, int64_t k,
                 int threads);
void product_i8(const int8_t *q, const float *x, float *out, const float *scale, const float *base, const float *bias,
                int64_t m, int64_t n, int64_t k, int threads);
void adapt_f32(const float *x, const float *a, const float *b, float *y, const int64_t *spans, int64_t rows, int64_t k,
               int64_t n, int64_t x_stride, int64_t a_stride, int64_t y_stride, int threads);
void attend_f32(const float *query, const float *keys, const float *values, float *out, const int64_t *slots,
                const int64_t *cu, int64_t sequences, int64_t kv_heads, int64_t groups, int64_t size,
                int64_t query_stride, int64_t head_stride, int64_t slot_stride, float scale, int threads);
void store_f32(const float *key, const float *value, float *keys, float *values, const int64_t *slots, int64_t tokens,
               int64_t heads, int64_t size, int64_t key_stride, int64_t key_head_stride, int64_t value_stride,
               int64_t value_head_stride, int64_t slot_stride, int64_t head_stride);
void norm_f32(const float *x, const float *weight, float *out, int64_t rows, int64_t size, float eps, int threads);
void rotate_f32(const float *x, const float *cosine, const float *sine, float *out, int64_t rows, int64_t heads,
                int64_t size, int64_t stride, int threads);
void gate_f32(const float *both, float *out, int64_t rows, int64_t size, int threads);
