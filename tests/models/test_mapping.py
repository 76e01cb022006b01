"""Memory pages of mapped weights: given back, still right, and nobody else's."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kev_engine.models.mapping import DONT_NEED, MappedWeights

PAGE_BYTES, MEBI = 4096, 1 << 20


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@pytest.mark.skipif(DONT_NEED is None, reason="this system has no madvise")
def test_what_was_given_back_is_read_again_and_its_neighbours_are_left(tmp_path):
    right = {name: torch.randn(4 * MEBI) for name in ("a", "b", "c")}
    save_file(right, tmp_path / "w.safetensors")
    read = load_file(tmp_path / "w.safetensors")
    mapped = MappedWeights()
    mapped.add([*read.values()])
    assert all(torch.equal(read[name], right[name]) for name in right)
    before = resident()
    mapped.give_back(read["b"])
    assert before - resident() > 15 * MEBI
    assert all(torch.equal(read[name], right[name]) for name in right)


def test_memory_that_lies_in_no_file_is_never_touched():
    """Giving anonymous memory back would fill it with zeros."""
    weight = torch.randn(MEBI)
    right = weight.clone()
    for mapped in (MappedWeights(), MappedWeights()):
        mapped.give_back(weight)
    mapped.add([torch.randn(MEBI)])
    mapped.give_back(weight)
    assert torch.equal(weight, right)
