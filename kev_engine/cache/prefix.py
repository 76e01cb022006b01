"""PrefixCache: blocks that were computed once are read again by every later story that begins with the same tokens.

A block's key is a digest of everything its keys and values depend on: what the engine is (`Identity`), the content of
the adapter, the key of the block before it, and its own token ids, each field tagged and length-prefixed so that no
two lists of fields run together. Nothing in it is a name, so a reloaded adapter or another template never hits.

The cache holds no reference. A kept block whose last reader left is free like any other and is handed out when memory
is wanted; its generation then changes, and the entry that remembers the old one is dead.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from kev_engine.cache.blocks import BlockPool, BlockTable


@dataclass(frozen=True)
class Identity:
    """What all keys and values of one engine depend on beside adapter and tokens; digests or canonical text."""

    weights: str
    dtype: str
    kv_dtype: str
    tokenizer: str
    chat_template: str
    rope: str

    def root_key(self, adapter_digest: str) -> bytes:
        """The key that stands before the first block of a story under this adapter ("" = the base)."""
        parts = [(item.name, getattr(self, item.name).encode()) for item in fields(self)]
        return digest([*parts, ("adapter", adapter_digest.encode())])


def digest(parts: Sequence[tuple[str, bytes]]) -> bytes:
    """32 bytes over tagged fields, each tag and each value behind its own length."""
    state = hashlib.blake2b(digest_size=32)
    for tag, value in parts:
        name = tag.encode()
        state.update(struct.pack("<IQ", len(name), len(value)))
        state.update(name)
        state.update(value)
    return state.digest()


class KeyChain:
    """The keys of one story's full blocks, each computed once: tokens are only ever added to a story."""

    def __init__(self, root_key: bytes) -> None:
        self._keys = [root_key]

    def key(self, index: int, token_ids: Sequence[int], block_size: int) -> bytes:
        """The key of block `index` of the story `token_ids`, which must be full."""
        for block in range(len(self._keys) - 1, index + 1):
            own = token_ids[block * block_size : (block + 1) * block_size]
            tokens = struct.pack(f"<{block_size}Q", *own)
            self._keys.append(digest([("parent", self._keys[-1]), ("tokens", tokens)]))
        return self._keys[index + 1]

    def inherit(self, parent: KeyChain, num_blocks: int) -> None:
        """Take over the keys of the first blocks, which this story has in common with its parent's."""
        if len(self._keys) <= num_blocks:
            self._keys = parent._keys[: num_blocks + 1]


@dataclass(frozen=True)
class Entry:
    """A full block as it was when it was kept."""

    block: int
    generation: int
    token_ids: tuple[int, ...]


class PrefixCache:
    """Which block holds which tokens behind which prefix. One owner, the engine's worker.

    At most `max_blocks` free blocks are kept, the least recently used go first; blocks in use cost nothing more.
    """

    def __init__(self, pool: BlockPool, max_blocks: int) -> None:
        self.pool = pool
        self.max_blocks = max_blocks
        self._entries: dict[bytes, Entry] = {}
        self._keys: dict[int, bytes] = {}
        """The key that each kept block stands under."""
        self._clock = 0

    def match(self, chain: KeyChain, token_ids: Sequence[int], limit: int) -> BlockTable:
        """The blocks of the longest kept prefix of a story, at most `limit` tokens of it; token by token equal."""
        size = self.pool.block_size
        blocks: list[int] = []
        for index in range(limit // size):
            entry = self._alive(chain.key(index, token_ids, size))
            if entry is None or entry.token_ids != tuple(token_ids[index * size : (index + 1) * size]):
                break
            blocks.append(entry.block)
        return np.asarray(blocks, dtype=np.int32)

    def keep(self, chain: KeyChain, token_ids: Sequence[int], index: int, block: int) -> None:
        """Remember that `block` holds the full block `index` of a story, unless another one is known to."""
        size = self.pool.block_size
        key = chain.key(index, token_ids, size)
        if self._alive(key) is None:
            self._drop(block)
            own = tuple(token_ids[index * size : (index + 1) * size])
            self._entries[key] = Entry(block, int(self.pool.generations[block]), own)
            self._keys[block] = key
            self._touch(np.asarray([block], dtype=np.int32))

    def release(self, table: BlockTable) -> None:
        """Release a story's blocks; what of them was kept is now the most recently used, its beginning last to go."""
        self.pool.release(table)
        self._touch(table[self.pool.recency[table] > 0])
        idle = np.flatnonzero((self.pool.refs == 0) & (self.pool.recency > 0))
        surplus = len(idle) - self.max_blocks
        if surplus > 0:
            for block in idle[np.argsort(self.pool.recency[idle])[:surplus]].tolist():
                self._drop(block)

    def forget(self, table: BlockTable) -> None:
        """Drop what was kept of these blocks: their content turned out to be unusable."""
        for block in table.tolist():
            self._drop(block)

    def _alive(self, key: bytes) -> Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.generation == self.pool.generations[entry.block] else None

    def _touch(self, blocks: BlockTable) -> None:
        self._clock += len(blocks)
        self.pool.recency[blocks] = self._clock - np.arange(len(blocks))

    def _drop(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None and key in self._entries and self._entries[key].block == block:
            del self._entries[key]
        self.pool.recency[block] = 0

    def check(self) -> None:
        """Prove that every block with recency stands under a live entry; raises AssertionError."""
        kept = np.flatnonzero(self.pool.recency).tolist()
        for block in kept:
            entry = self._entries[self._keys[block]]
            assert entry.block == block, f"kept block {block} stands under the entry of block {entry.block}"
            assert entry.generation == self.pool.generations[block], f"the entry of kept block {block} is dead"
            assert len(entry.token_ids) == self.pool.block_size, f"kept block {block} is not full"
        assert self._entries.keys() <= set(self._keys.values()), "an entry stands under no block"
        assert self.pool.num_kept <= self.max_blocks, f"{self.pool.num_kept} blocks kept, {self.max_blocks} allowed"
