"""EngineConfig: what an engine is started with. The environment is read in `from_env` and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kev_engine.errors import InvalidField

FIFO = "fifo"
POLICIES = (FIFO, "shortest-first", "priority")
EMBEDDED = "embedded"
MIN_TOKEN_BUDGET = 16
HUB_NAMES = ("huggingface", "modelscope")


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine, frozen at its start.

    `dtype` "int8" keeps the matrices in 8 bits and computes in float32 (on CUDA in bfloat16). `kv_dtype` None means:
    keys and values in what is computed in. `kv_budget_bytes` None means: derived from free memory at load.
    `block_size` None means: 16 tokens, or what the backend's pages demand. `token_budget` is the most new tokens one
    forward takes; prompts beyond it enter in chunks, and beside questions that decode at most `prefill_chunk` prompt
    tokens do. `policy` says who is admitted first (runtime/policy.py). `prefix_cache_bytes` is the most KV memory that
    holds what finished questions computed: 0 switches the prefix cache off, None is half of the KV budget.
    `temperature` is the first version of the default temperature. `hub` is where a model named owner/name comes
    from, None = such a name needs its scheme. `kernels`: "native" compiles the CPU kernels once a machine and demands
    them, "torch" does without, "auto" takes them where a C compiler is.
    """

    model: str = EMBEDDED
    hub: str | None = None
    backend: str | None = None
    device: str = "auto"
    dtype: str = "float32"
    kv_dtype: str | None = None
    threads: int | None = None
    kv_budget_bytes: int | None = None
    block_size: int | None = None
    token_budget: int = 4096
    prefill_chunk: int = 64
    policy: str = FIFO
    prefix_cache_bytes: int | None = None
    max_questions: int = 256
    max_waiting: int = 1024
    temperature: float = 0.0
    kernels: str = "auto"
    adapter_pool_size: int = 4
    adapters: Mapping[str, str] = field(default_factory=dict)
    home: Path = Path.home() / ".cache" / "kev"

    def __post_init__(self) -> None:
        whole = (
            ("threads", 1), ("kv_budget_bytes", 1), ("block_size", 1), ("token_budget", MIN_TOKEN_BUDGET),
            ("prefill_chunk", 1), ("prefix_cache_bytes", 0), ("max_questions", 1), ("max_waiting", 1),
            ("adapter_pool_size", 1),
        )
        for name, least in whole:
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidField(name, value, f"it must be at least {least}")
        if self.hub is not None and self.hub not in HUB_NAMES:
            raise InvalidField("hub", self.hub, f"it must be one of {', '.join(HUB_NAMES)}")
        if self.policy not in POLICIES:
            raise InvalidField("policy", self.policy, f"it must be one of {', '.join(POLICIES)}")
        if not 0 <= self.temperature < float("inf"):
            raise InvalidField("temperature", self.temperature, "it must be a number of 0 or more (0 = greedy)")

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, **given: object) -> EngineConfig:
        """The configuration of the environment, each value in `given` that is not None taking precedence.

        Reads KEV_HOME (else XDG_CACHE_HOME/kev), KEV_MODEL, KEV_HUB, KEV_BACKEND, KEV_KERNELS, KEV_DEVICE, KEV_DTYPE,
        KEV_KV_DTYPE, KEV_THREADS, KEV_KV_BUDGET, KEV_TOKEN_BUDGET, KEV_PREFILL_CHUNK, KEV_POLICY, KEV_PREFIX_CACHE,
        KEV_ADAPTER_POOL and KEV_TEMPERATURE. Raises InvalidField for a value that cannot be read.
        """
        env = os.environ if env is None else env
        values: dict[str, object] = {"home": cache_home(env)}
        for name, variable, read in (
            ("model", "KEV_MODEL", str), ("hub", "KEV_HUB", str), ("backend", "KEV_BACKEND", str),
            ("kernels", "KEV_KERNELS", str),
            ("device", "KEV_DEVICE", str), ("dtype", "KEV_DTYPE", str), ("kv_dtype", "KEV_KV_DTYPE", str),
            ("threads", "KEV_THREADS", int), ("kv_budget_bytes", "KEV_KV_BUDGET", int),
            ("token_budget", "KEV_TOKEN_BUDGET", int), ("temperature", "KEV_TEMPERATURE", float),
            ("prefill_chunk", "KEV_PREFILL_CHUNK", int), ("policy", "KEV_POLICY", str),
            ("prefix_cache_bytes", "KEV_PREFIX_CACHE", int), ("adapter_pool_size", "KEV_ADAPTER_POOL", int),
        ):
            text = env.get(variable, "").strip()
            if text:
                try:
                    values[name] = read(text)
                except ValueError:
                    kind = "a number" if read is float else "a whole number"
                    raise InvalidField(variable, text, f"it must be {kind}") from None
        values.update({name: value for name, value in given.items() if value is not None})
        return cls(**values)  # type: ignore[arg-type]


def cache_home(env: Mapping[str, str]) -> Path:
    """The folder that keeps converted models and the run log: KEV_HOME, else the XDG cache folder's `kev`."""
    if env.get("KEV_HOME", "").strip():
        return Path(env["KEV_HOME"]).expanduser()
    base = env.get("XDG_CACHE_HOME", "").strip()
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "kev"
