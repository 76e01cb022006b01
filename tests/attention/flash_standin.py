"""flash-attn's two calls in plain torch, for the CPU suite: the package's signatures, its checks, and its results.

It refuses what the package refuses, and also what the package does not look at and answers with garbage: prefix sums
that fall or end early, tables that point outside the cache, lengths above the stated maximum. Within one sequence it
treats keys as the kernels do: behind the last key nothing is read; a hidden key gets the score −inf, but its value is
still multiplied (by zero).
"""

from __future__ import annotations

import torch

PAGE_MULTIPLE = 256
Window = tuple[int, int]


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
    block_table=None,
):
    """`q` `[T, Hq, D]` over the pages `k`, `v` `[blocks, page, Hkv, D]`: `[T, Hq, D]`."""
    assert (dropout_p, alibi_slopes, deterministic, return_attn_probs) == (0.0, None, False, False), "not stood in for"
    _check_tensors(q, k, v, block_table)
    lengths_q = _lengths("cu_seqlens_q", cu_seqlens_q, max_seqlen_q)
    lengths_k = _lengths("cu_seqlens_k", cu_seqlens_k, max_seqlen_k)
    _require(len(lengths_q) == len(lengths_k), "cu_seqlens_k must have shape (batch_size + 1)")
    _require(sum(lengths_q) == q.shape[0], f"cu_seqlens_q ends at {sum(lengths_q)} and q has {q.shape[0]} rows")
    stories = _stories(k, v, lengths_k, block_table)
    rows = q.split(lengths_q)
    return torch.cat([
        _attend(mine, key, value, softmax_scale, causal, window_size, softcap)
        for mine, (key, value) in zip(rows, stories, strict=True)
    ])


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False,
):
    """`q` `[S, Q, Hq, D]` over the first `cache_seqlens` keys of each table: `[S, Q, Hq, D]`."""
    unused = (k, v, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, alibi_slopes)
    assert all(item is None for item in unused), "not stood in for"
    assert not return_softmax_lse, "not stood in for"
    _check_tensors(q, k_cache, v_cache, block_table)
    _check_index("cache_seqlens", cache_seqlens)
    _require(cache_seqlens.shape == (q.shape[0],), "seqlens_k must have shape (batch_size)")
    stories = _stories(k_cache, v_cache, cache_seqlens.tolist(), block_table)
    return torch.stack([
        _attend(mine, key, value, softmax_scale, causal, window_size, softcap)
        for mine, (key, value) in zip(q, stories, strict=True)
    ])


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)


def _check_tensors(q, k, v, block_table) -> None:
    _require(q.dtype in (torch.float16, torch.bfloat16), "FlashAttention only support fp16 and bf16 data type")
    _require(k.dtype == v.dtype == q.dtype, "query, key and value must have the same dtype")
    _require(len({tensor.device for tensor in (q, k, v, block_table)}) == 1, "all tensors must be on one device")
    _require(all(x.stride(-1) == 1 for x in (q, k, v)), "Input tensor must have contiguous last dimension")
    _require(block_table.dtype == torch.int32, "block_table must have dtype torch.int32")
    _require(block_table.stride(-1) == 1, "block_table must have contiguous last dimension")
    _require(k.shape == v.shape, "k and v must have one shape")
    _require(k.dim() == 4 and k.shape[1] % PAGE_MULTIPLE == 0, "Paged KV cache block size must be divisible by 256")
    head_dim = q.shape[-1]
    _require(head_dim <= 256, "FlashAttention forward only supports head dimension at most 256")
    _require(head_dim % 8 == 0, "query, key, value, and out_ must have a head_size that is a multiple of 8")
    _require(k.shape[3] == head_dim, "k must have q's head dimension")
    _require(q.shape[-2] % k.shape[2] == 0, "Number of heads in key/value must divide number of heads in query")


def _check_index(name: str, tensor) -> None:
    _require(tensor.dtype == torch.int32, f"{name} must have dtype int32")
    _require(tensor.dim() == 1, f"{name} must have one dimension")
    _require(tensor.is_contiguous(), f"{name} must be contiguous")


def _lengths(name: str, cumulative, longest: int) -> list[int]:
    _check_index(name, cumulative)
    _require(len(cumulative) > 1, "batch size must be positive")
    _require(int(cumulative[0]) == 0, f"{name} must begin with 0")
    lengths = cumulative.diff().tolist()
    _require(min(lengths) >= 0, f"{name} must not fall")
    _require(max(lengths) <= longest, f"{name} holds a sequence of {max(lengths)}, above the maximum {longest}")
    return lengths


def _stories(k, v, lengths: list[int], block_table) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values `[K, Hkv, D]` of each sequence, its last page cut at its length."""
    page = k.shape[1]
    _require(block_table.shape[0] == len(lengths), "block_table must have shape (batch_size, max_num_blocks_per_seq)")
    stories = []
    for table, length in zip(block_table, lengths, strict=True):
        num_pages = -(-length // page)
        _require(num_pages <= len(table), f"{length} keys exceed the {len(table)} pages of the table")
        pages = table[:num_pages].long()
        _require(bool(((pages >= 0) & (pages < len(k))).all()), "block_table points outside the cache")
        stories.append((k[pages].flatten(0, 1)[:length], v[pages].flatten(0, 1)[:length]))
    return stories


def _attend(q, key, value, scale, causal: bool, window: Window, softcap: float) -> torch.Tensor:
    """One sequence: `q` `[Q, Hq, D]`, sums in fp32, weights rounded before they meet the values."""
    num_queries, num_keys, groups = len(q), len(key), q.shape[1] // key.shape[1]
    scores = torch.einsum("qhd,khd->hqk", q.float(), key.repeat_interleave(groups, 1).float())
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    left, right = window[0], 0 if causal else window[1]
    # The last query stands at the last key, whatever the two lengths are.
    offset = torch.arange(num_keys)[None, :] - torch.arange(num_queries)[:, None] - (num_keys - num_queries)
    hidden = torch.zeros_like(offset, dtype=torch.bool)
    if right >= 0:
        hidden |= offset > right
    if left >= 0:
        hidden |= offset < -left
    weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
    weights = weights.masked_fill(hidden.all(dim=1)[None, :, None], 0.0)  # a row that may read nothing gives zeros
    read = torch.einsum("hqk,khd->qhd", weights.to(q.dtype).float(), value.repeat_interleave(groups, 1).float())
    return read.to(q.dtype)
