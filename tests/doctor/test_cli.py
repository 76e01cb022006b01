"""The command as people run it: exit status, one clear line, JSON, picture, files, start without torch, time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

CASES = Path(__file__).parent / "cases"
ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kev_engine.doctor", *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, cwd=ROOT)


@pytest.mark.parametrize(("case", "status"), [("BR-001", 1), ("CTL-01", 0), ("CTL-15", 0), ("BR-145", 0)])
def test_exit_status_and_json(case, status):
    done = run(CASES / f"{case}.json", "--json")
    assert done.returncode == status
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert set(report) == {"verdict", "assumed", "findings"}
    for finding in report["findings"]:
        assert set(finding) == {"code", "level", "count", "indexes", "pairs", "expected", "found", "message", "repair"}


def test_a_report_for_people_draws_the_mask():
    done = run(CASES / "BR-001.json")
    assert "×××××█" in done.stdout
    assert "query 5 of segment 1 reads key 0 of segment 0" in done.stdout
    assert "repair:" in done.stdout


@pytest.mark.parametrize(("content", "named"), [
    ('{"batch": {"lengths": [3, "x"]}}', "lengths[1]"), ('{"lenghts": [3]}', "lengths"), ("[1, 2", "line 1"),
    ("[1, 2]", "an object"), ('{"attention_mask": [[1, 0], [1]]}', "attention_mask[1]"), ("", "line 1"),
    ('{"attention_mask": {"file": "no.npy"}}', "no.npy"), ("[" * 100_000, "nested too deeply"),
    ('{"parents": [null], "lengths": [2, 3]}', "parents"), ('{"cu_seqlens": [0, NaN]}', "cu_seqlens[1]"),
])
def test_an_unusable_file_is_one_clear_line(tmp_path, content, named):
    path = tmp_path / "batch.json"
    path.write_text(content)
    done = run(path, "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_does_not_exist(tmp_path):
    done = run(tmp_path / "none.json")
    assert done.returncode == 2
    assert "does not exist" in done.stderr


def test_several_files_give_the_worst_status(tmp_path):
    done = run(CASES / "CTL-01.json", CASES / "BR-001.json", "--json")
    assert done.returncode == 1
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["ok", "error"]
    assert run(CASES / "BR-001.json", tmp_path / "none.json").returncode == 2


def test_array_files(tmp_path):
    mask = np.tril(np.ones((6, 6), dtype=bool))
    np.save(tmp_path / "mask.npy", mask)
    np.savez(tmp_path / "batch.npz", attention_mask=mask, lengths=np.array([3, 3]))
    assert run(tmp_path / "mask.npy", "--json").returncode == 0
    assert run(tmp_path / "batch.npz", "--json").returncode == 1
    (tmp_path / "by_name.json").write_text(json.dumps({"lengths": [6], "attention_mask": {"file": "mask.npy"}}))
    assert run(tmp_path / "by_name.json").returncode == 0
    (tmp_path / "broken.npy").write_bytes(b"no array")
    assert run(tmp_path / "broken.npy").returncode == 2


def test_tensor_files(tmp_path):
    import torch
    from safetensors.torch import save_file

    mask = torch.zeros(4, 4, dtype=torch.bfloat16).masked_fill(torch.ones(4, 4).triu(1).bool(), -1e30)
    save_file({"attention_mask": mask}, tmp_path / "mask.safetensors")
    torch.save({"attention_mask": mask, "lengths": torch.tensor([4])}, tmp_path / "mask.pt")
    for name in ("mask.safetensors", "mask.pt"):
        done = run(tmp_path / name, "--json")
        assert (done.returncode, json.loads(done.stdout)["findings"]) == (0, [])
    torch.save({"attention_mask": object}, tmp_path / "code.pt")
    assert run(tmp_path / "code.pt").returncode == 2


def test_a_picture_is_saved(tmp_path):
    from PIL import Image

    path = tmp_path / "mask.png"
    assert run(CASES / "BR-001.json", "--picture", path).returncode == 1
    with Image.open(path) as picture:
        colours = {colour for _, colour in picture.getcolors()}
    assert (238, 119, 51) in colours, "the leak has no colour"
    assert run(CASES / "BR-083.json", "--picture", path).returncode == 2


def test_start_without_torch_and_soon():
    """Under 1 s of work from the first import to the verdict; of work, because the machine may be busy."""
    code = ("import sys, time; from kev_engine.doctor import diagnose\n"
            "report = diagnose({'lengths': [2, 2], 'attention_mask': {'ones': [1, 4]}, 'consumer': 'hf'})\n"
            "assert report.verdict == 'error'\n"
            "assert not {'torch', 'transformers', 'PIL'} & set(sys.modules)\nprint(time.process_time())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert float(done.stdout) < 1


def test_32k_tokens_need_no_matrix():
    """Under 2 s when the machine is free; the bound here leaves room for a busy one. A T × T array would need 1 GiB."""
    import tracemalloc

    from kev_engine.doctor.report import diagnose

    total = 32768
    lengths = [total // 64] * 64
    positions = [place for length in lengths for place in range(length)]
    tracemalloc.start()
    start = time.perf_counter()
    clean = diagnose({"lengths": lengths, "position_ids": positions, "consumer": "hf"})
    leaky = diagnose({"lengths": lengths, "position_ids": positions, "attention_mask": {"ones": [1, total]},
                      "consumer": "hf"})
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert clean.verdict == "ok"
    assert "CROSS_SEGMENT_LEAK" in leaky.codes
    assert seconds < 12
    assert peak < 200_000_000


def test_a_dense_mask_of_8k():
    """Under 5 s when the machine is free; a single leaking cell stays visible in the smallest picture."""
    from kev_engine.doctor.picture import LEAK, grid
    from kev_engine.doctor.report import diagnose

    size = 8192
    mask = np.tril(np.ones((size, size), dtype=bool))
    mask[4000, 5000] = True
    start = time.perf_counter()
    report = diagnose({"attention_mask": mask, "consumer": "sdpa"})
    assert [(finding.code, finding.count) for finding in report.findings] == [("LEAK_FUTURE", 1)]
    assert time.perf_counter() - start < 20
    assert (grid(report, 64) == LEAK).sum() == 1
