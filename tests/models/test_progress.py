from __future__ import annotations

import logging
import warnings

import pytest
from transformers.utils import logging as library

from kev_engine.models.progress import byte_bar, progress_bar, silent, transformers_heard

Step = tuple[str, int, int]


def test_a_bar_counts_a_loop_and_manual_updates() -> None:
    seen: list[Step] = []
    bar = progress_bar("load", lambda *step: seen.append(step))
    assert list(bar(["a", "b"])) == ["a", "b"]
    with bar(total=10, initial=4) as manual:
        manual.update(3)
    assert seen == [("load", 1, 2), ("load", 2, 2), ("load", 7, 10)]


def test_only_written_bytes_are_reported_of_a_hubs_bars() -> None:
    seen: list[Step] = []
    bar = byte_bar("download", lambda *step: seen.append(step))
    bar(total=3, desc="Fetching 3 files").update(1)
    bar(total=9, unit="B", desc="Downloading bytes").update(9)
    bar(total=9, unit="B", desc="Reconstructing").update(5)
    assert seen == [("download", 5, 9)]


def test_what_transformers_warns_of_is_heard_once_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    logger = library.get_logger("transformers.somewhere")
    verbosity = library.get_verbosity()
    with transformers_heard("load", silent) as heard:
        logger.warning("the weights\n  are strange")
        logger.warning("the weights are strange")
        logger.info("all is well")
        warnings.warn("old", FutureWarning, stacklevel=1)
    assert heard == ["the weights are strange"]
    assert capsys.readouterr().err == ""
    assert library.get_verbosity() == verbosity
    logger.warning("after")
    assert heard == ["the weights are strange"]


def test_transformers_is_put_back_after_an_error() -> None:
    before = list(logging.getLogger("transformers").handlers)

    def fail() -> None:
        with transformers_heard("load", silent):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert sorted(map(id, logging.getLogger("transformers").handlers)) == sorted(map(id, before))
