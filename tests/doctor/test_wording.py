"""The sentences: two tables with the same keys and facts, and a Chinese one that speaks Chinese."""

import json
import re
from pathlib import Path
from string import Formatter

import pytest

from kev_engine.doctor.chinese import CHINESE
from kev_engine.doctor.english import ENGLISH
from kev_engine.doctor.report import diagnose
from kev_engine.doctor.wording import CATALOGUES

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def facts_of(text: str) -> set[tuple[str, str | None, str | None]]:
    return {(name, form, conversion) for _, name, form, conversion in Formatter().parse(text) if name}


@pytest.mark.parametrize("key", sorted(set(ENGLISH) | set(CHINESE)))
def test_both_tables_say_the_same_facts(key):
    for english, chinese in zip(ENGLISH[key], CHINESE[key], strict=True):
        assert bool(english) == bool(chinese)
        assert facts_of(english) == facts_of(chinese)
        assert not english or english != chinese


@pytest.mark.parametrize("language", sorted(CATALOGUES))
def test_every_finding_of_the_cases_can_be_said(language):
    for path in CASES:
        report = diagnose(json.loads(path.read_text(encoding="utf-8"))["batch"], path.parent)
        said = [finding.say(part, language) for finding in report.findings for part in ("message", "repair")]
        for sentence in said + [entry.say(language) for entry in report.assumed]:
            assert "None" not in sentence, (path.stem, sentence)
            if language == "zh-CN" and sentence:
                assert re.search("[一-鿿]", sentence), (path.stem, sentence)
                for english in ("the consumer", "at least", "unknown", " any,"):
                    assert english not in sentence, (path.stem, sentence)


def test_segments_go_by_the_names_their_reader_gives_them():
    batch = {"lengths": [2, 3], "attention_mask": {"ones": [1, 5]}, "consumer": "hf"}
    leak = diagnose(batch).findings[0]
    assert "query 2 of segment B reads key 0 of segment A" in leak.say("message", names={0: "A", 1: "B"})
    assert "query 2 of segment 1 reads key 0 of segment 0" in leak.message
