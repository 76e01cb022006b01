"""The default temperature: a number and its value are never torn apart."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kev_engine.errors import InvalidField
from kev_engine.sampling.temperature import Temperature, TemperatureVersion


def test_versions_count_the_changes() -> None:
    temperature = Temperature(0)
    assert temperature.current() == TemperatureVersion(0, 0.0)
    assert temperature.set(0.3) == 1
    assert temperature.current() == TemperatureVersion(1, 0.3)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 101, "warm", True])
def test_a_value_that_no_question_may_have_changes_nothing(value: object) -> None:
    temperature = Temperature(0.5)
    with pytest.raises(InvalidField, match="temperature"):
        temperature.set(value)  # type: ignore[arg-type]
    assert temperature.current() == TemperatureVersion(0, 0.5)


@pytest.fixture
def _switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_switch_often")
def test_readers_never_see_half_a_change() -> None:
    """Three writers set values all the time; each pair a reader sees was set as that pair, and numbers only grow."""
    temperature = Temperature(0)
    written: dict[int, float] = {0: 0.0}
    done = threading.Event()

    def write(offset: int) -> None:
        step = 0
        while not done.is_set():
            value = ((step * 3 + offset) % 997) / 10
            written[temperature.set(value)] = value
            step += 1

    writers = [threading.Thread(target=write, args=(offset,)) for offset in range(3)]
    for writer in writers:
        writer.start()
    seen = [temperature.current()]
    while len(seen) < 2000:
        now = temperature.current()
        if now != seen[-1]:
            seen.append(now)
        time.sleep(0)
    done.set()
    for writer in writers:
        writer.join()
    assert all(written[now.version] == now.value for now in seen)
    assert [now.version for now in seen] == sorted(now.version for now in seen)
    assert sorted(written) == list(range(len(written))), "a version was given out twice"
