"""AdapterPool: the adapters that are loaded, by name and by version, and which of them are resident.

    load(name, path) / take(name, files)  from any thread: read an adapter, check it, give it a name
    rename(old, new) / unload(name)
    resolve(name) / acquire(name)         a name (None = the base) as the version it means now; acquire also holds it
    hold(version) / release(version)      one more, one less, running sequence that uses this version
    reside(adapter_ids) -> Bank           the worker, before a step: these adapters are on the device
    names() / list()                      for people

A version is a content digest. Loading other content under an old name makes a new version; sequences that hold the old
one keep it, and it is dropped when nobody holds it and no name means it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from kev_engine.adapters.bank import Bank
from kev_engine.adapters.files import MAX_WEIGHTS_BYTES, AdapterFiles, read_files
from kev_engine.adapters.weights import FLAWS, AdapterWeights, check
from kev_engine.errors import InvalidField, UnknownAdapter

SHORT = 12


@dataclass(frozen=True, eq=False)
class AdapterVersion:
    """One version of an adapter. `adapter_id` stands for it in a step's `adapter_ids`; it is never used again."""

    adapter_id: int
    weights: AdapterWeights | None

    @property
    def digest(self) -> str:
        """The whole content digest, for cache keys; empty for the base."""
        return self.weights.version if self.weights else ""

    @property
    def version(self) -> str | None:
        """The first digits of the digest, for people; None for the base."""
        return self.digest[:SHORT] or None


BASE = AdapterVersion(0, None)


@dataclass(frozen=True)
class AdapterInfo:
    """What is known of a loaded adapter. `uses` counts the sequences that have held this version, `holds` those now.

    `dtype` is that of the file, `base_dtype` the model's, in which it is applied; in CPU memory it is kept in fp32.
    `flaw` says why it changes nothing, if so (AdapterWeights.flaw).
    """

    name: str
    adapter_id: int
    version: str
    ranks: tuple[int, ...]
    alphas: tuple[float, ...]
    scales: tuple[float, ...]
    modules: int
    untouched: int
    num_bytes: int
    dtype: str
    base_dtype: str
    base: str | None
    flaw: str | None
    is_resident: bool
    uses: int
    holds: int
    untrained_stops: tuple[int, ...] = ()
    """Stop tokens of the model whose embedding row was never trained."""

    @property
    def mixes_halves(self) -> bool:
        """Whether file and model are fp16 and bf16, or the reverse: then weights are rounded, or small ones lost."""
        return {self.base_dtype, *self.dtype.split(", ")} >= {"float16", "bfloat16"}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know, as sentences."""
        found = []
        if self.mixes_halves:
            found.append(
                f"adapter {self.name!r} holds {self.dtype} numbers and the model {self.base_dtype} ones, so they are "
                "rounded, or lost where they are small; save the adapter as float32 or load the model in its dtype."
            )
        if self.flaw:
            found.append(f"adapter {self.name!r} changes nothing: {FLAWS[self.flaw]}.")
        if self.untrained_stops:
            ids = ", ".join(map(str, self.untrained_stops))
            found.append(
                f"adapter {self.name!r} cannot teach the model to end with token {ids}, whose embedding row was never "
                "trained; give stop strings as well, or train the embedding rows and merge them into the model."
            )
        return tuple(found)


@dataclass(eq=False)
class _Entry:
    version: AdapterVersion
    names: set[str] = field(default_factory=set)
    holds: int = 0
    uses: int = 0


class AdapterPool:
    """Any number of loaded adapters, at most `size` of them resident, the least recently used moved out first."""

    def __init__(self, model: nn.Module, size: int, untrained_stops: Iterable[int] = ()) -> None:
        if size < 1:
            raise InvalidField("adapter_pool_size", size, "it must be at least 1")
        self.size = size
        self._model = model
        self._untrained_stops = tuple(sorted(untrained_stops))
        self._lock = threading.RLock()
        self._entries: dict[int, _Entry] = {}
        self._names: dict[str, int] = {}
        self._next_id = 1
        self._bank = Bank(model, size)
        self._recent: dict[int, None] = {}

    def load(self, name: str, path: str | Path, max_bytes: int = MAX_WEIGHTS_BYTES) -> AdapterVersion:
        """Read an adapter and give it this name; raises AdapterRefused and InvalidField, and then nothing changed."""
        require_name(name)
        return self.take(name, read_files(Path(path), name, max_bytes))

    def take(self, name: str, files: AdapterFiles) -> AdapterVersion:
        """The same for files that were read before."""
        return self.add(name, check(files, self._model, name))

    def add(self, name: str, weights: AdapterWeights) -> AdapterVersion:
        """Give weights that were read before this name; the same content has the same version under every name."""
        require_name(name)
        with self._lock:
            known = [entry for entry in self._entries.values() if entry.version.digest == weights.version]
            entry = known[0] if known else self._enter(AdapterVersion(self._next_id, weights))
            self._forget_name(name, unless=entry)
            entry.names.add(name)
            self._names[name] = entry.version.adapter_id
            return entry.version

    def rename(self, old: str, new: str) -> None:
        """Call what `old` means `new` from now on. Raises UnknownAdapter, and InvalidField for a name in use."""
        require_name(new)
        with self._lock:
            version = self.resolve(old)
            if new == old:
                return
            if new in self._names:
                raise InvalidField("adapter name", new, "another adapter has it; choose a free name or unload that one")
            entry = self._entries[version.adapter_id]
            entry.names = entry.names - {old} | {new}
            self._names[new] = self._names.pop(old)

    def unload(self, name: str) -> None:
        """Take the name away; sequences that hold the version go on. Raises UnknownAdapter."""
        with self._lock:
            self.resolve(name)
            self._forget_name(name)

    def resolve(self, name: str | None) -> AdapterVersion:
        """The version a name means now; None means the base. Raises UnknownAdapter, with the nearest name."""
        with self._lock:
            if name is None:
                return BASE
            if name not in self._names:
                raise UnknownAdapter(name, self.names())
            return self._entries[self._names[name]].version

    def acquire(self, name: str | None) -> AdapterVersion:
        """`resolve` and `hold` in one, so that no unload comes between them."""
        with self._lock:
            version = self.resolve(name)
            self.hold(version)
            return version

    def hold(self, version: AdapterVersion) -> None:
        """Keep this version usable until `release`; a version that was dropped meanwhile is taken in again."""
        if version.weights is None:
            return
        with self._lock:
            entry = self._entries.get(version.adapter_id) or self._enter(version)
            entry.holds += 1
            entry.uses += 1

    def release(self, version: AdapterVersion) -> None:
        """Undo one `hold`."""
        if version.weights is None:
            return
        with self._lock:
            entry = self._entries[version.adapter_id]
            if entry.holds < 1:
                raise ValueError(f"adapter {version.version} was released more often than held")
            entry.holds -= 1
            self._drop_if_unused(entry)

    def reside(self, adapter_ids: Iterable[int]) -> Bank:
        """The bank, with these adapters in it; called by the thread that runs the model, before each step.

        Raises InvalidField for more adapters than the pool's size, and for an id that nobody holds or names.
        """
        wanted = sorted({int(adapter_id) for adapter_id in adapter_ids} - {0})
        with self._lock:
            if len(wanted) > self.size:
                raise InvalidField("adapters of one step", len(wanted), f"the pool holds {self.size} at a time")
            for adapter_id in wanted:
                if adapter_id not in self._entries:
                    raise InvalidField("adapter_ids", adapter_id, "no loaded adapter has this id")
            for adapter_id in wanted:
                self._recent.pop(adapter_id, None)
            for adapter_id in [old for old in self._bank.columns if old not in self._entries]:
                self._offload(adapter_id)
            missing = [adapter_id for adapter_id in wanted if adapter_id not in self._bank.columns]
            # `_recent` has no id of this step now; those that no sequence holds go first, each group by its last use.
            while len(self._bank.columns) + len(missing) > self.size:
                idle = (adapter_id for adapter_id in self._recent if not self._entries[adapter_id].holds)
                self._offload(next(idle, None) or next(iter(self._recent)))
            for adapter_id in missing:
                weights = self._entries[adapter_id].version.weights
                assert weights is not None
                self._bank.place(adapter_id, weights)
            self._recent |= dict.fromkeys(wanted)
            return self._bank

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._names))

    def info(self, name: str) -> AdapterInfo:
        """What is known of one adapter. Raises UnknownAdapter."""
        with self._lock:
            self.resolve(name)
            return self._info(name)

    def list(self) -> tuple[AdapterInfo, ...]:
        """What is loaded, by name."""
        with self._lock:
            return tuple(self._info(name) for name in self.names())

    def check(self) -> None:
        """Prove the invariants; raises AssertionError. Tests call it after every step."""
        with self._lock:
            assert {name for entry in self._entries.values() for name in entry.names} == self._names.keys()
            for name, adapter_id in self._names.items():
                assert name in self._entries[adapter_id].names
            for entry in self._entries.values():
                assert entry.names or entry.holds, "a version is kept that nobody holds or names"
            assert len(self._bank.columns) <= self.size
            assert self._recent.keys() == self._bank.columns.keys()

    def _info(self, name: str) -> AdapterInfo:
        entry = self._entries[self._names[name]]
        weights = entry.version.weights
        assert weights is not None
        return AdapterInfo(
            name=name, adapter_id=entry.version.adapter_id, version=weights.version[:SHORT], ranks=weights.ranks,
            alphas=weights.alphas, scales=weights.scales, modules=len(weights.pairs), untouched=len(weights.untouched),
            num_bytes=weights.num_bytes, dtype=weights.dtype, base_dtype=weights.base_dtype, base=weights.base,
            flaw=weights.flaw,
            is_resident=entry.version.adapter_id in self._bank.columns, uses=entry.uses, holds=entry.holds,
            untrained_stops=self._untrained_stops,
        )

    def _enter(self, version: AdapterVersion) -> _Entry:
        entry = self._entries[version.adapter_id] = _Entry(version)
        self._next_id = max(self._next_id, version.adapter_id + 1)
        return entry

    def _forget_name(self, name: str, unless: _Entry | None = None) -> None:
        old = self._entries.get(self._names.get(name, 0))
        if old is None or old is unless:
            return
        old.names.remove(name)
        del self._names[name]
        self._drop_if_unused(old)

    def _drop_if_unused(self, entry: _Entry) -> None:
        # Its place in the bank is given free by the next `reside`, on the thread that owns the bank.
        if not entry.names and not entry.holds:
            del self._entries[entry.version.adapter_id]

    def _offload(self, adapter_id: int) -> None:
        self._bank.remove(adapter_id)
        self._recent.pop(adapter_id, None)


def require_name(name: str) -> None:
    """Raises InvalidField for a name that no question could give."""
    if not name or name != name.strip():
        raise InvalidField("adapter name", name, "it must hold some text, without spaces around it")
