"""Temperature: the default sampling temperature, in numbered versions.

    temperature = Temperature(0.0)             # version 0
    number = temperature.set(0.3)              # 1
    now = temperature.current()                # TemperatureVersion(version=1, value=0.3)

A run takes `current()` once, at its start, and keeps it. Number and value are one frozen value behind one reference, so
a reader never sees the number of one version with the value of another.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kev_engine.schema import SamplingParams


@dataclass(frozen=True)
class TemperatureVersion:
    """`value` is what questions without a temperature use; `version` counts the changes since the start."""

    version: int
    value: float


class Temperature:
    """The owner of the default; every method may be called from any thread."""

    def __init__(self, value: float) -> None:
        self._current = TemperatureVersion(0, _checked(value))
        self._lock = threading.Lock()

    def set(self, value: float) -> int:
        """The number of the new version. Raises InvalidField for a value that no question may have."""
        value = _checked(value)
        with self._lock:
            self._current = TemperatureVersion(self._current.version + 1, value)
            return self._current.version

    def current(self) -> TemperatureVersion:
        return self._current


def _checked(value: float) -> float:
    SamplingParams(temperature=value)
    return float(value)
