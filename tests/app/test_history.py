"""The run log: what is kept comes back, two processes write at once, and a bad file is one clear sentence."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.board import CardValues, SharedValues, board
from app.history import MIGRATIONS, HistoryUnavailable, RunLog
from app.i18n import EN, LANGUAGES, sentence
from app.run_record import RunRecord, Segment

NOBODY = 65534


def run_record(question: str = "Where?", **changes) -> RunRecord:
    return replace(RunRecord(
        at="2026-01-02T03:04:05+00:00", board=board((CardValues(question, "In 100 % of cases_"),)),
        questions=({"id": "A", "question": question},), shared={},
        answers=({"id": "A", "text": "Here.", "token_ids": [1], "finish_reason": "stop", "sampling": {"seed": 7}},),
        refused={}, run={"seconds": 1.5}, engine={"model": "tiny", "digest": "abc"}, adapters={"pirate": "9f3c"},
        versions={"torch": "2"}, segments=(Segment("A", 3, 2),),
    ), **changes)


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "home" / "history.sqlite")


def test_what_is_kept_comes_back_equal(log):
    shared = board((CardValues("问题", shared="s"),), (SharedValues("s", "上下文"),))
    for record in (run_record(), run_record(board=shared, audit={"isolated": True}, notice="a step failed")):
        assert log.get(log.add(record)) == record


def test_the_newest_come_first_and_searching_finds_every_word(log):
    asked = ("Where is the lighthouse?", "Who keeps the LIGHTHOUSE?", "这座桥在哪里？", "100% sure_", "50 sure")
    for question in asked:
        log.add(run_record(question, board=board((CardValues(question),))))

    def found(text: str) -> list[str]:
        return [row.first_question for row in log.search(text).rows]

    assert len(found("")) == 5
    assert found("")[0] == "50 sure"
    assert found("lighthouse") == ["Who keeps the LIGHTHOUSE?", "Where is the lighthouse?"]
    assert found("lighthouse who") == ["Who keeps the LIGHTHOUSE?"]
    assert found("桥") == ["这座桥在哪里？"]
    assert found("100%") == found("sure_") == ["100% sure_"]
    assert found("'; DROP TABLE runs; --") == []
    assert len(found("pirate here.")) == 5
    limited = log.search(limit=2)
    assert (len(limited.rows), limited.total) == (2, 5)


def test_an_audit_is_kept_with_its_run(log):
    number = log.add(run_record())
    assert log.search().rows[0].isolated is None
    log.replace(number, run_record(audit={"isolated": False}))
    assert log.search().rows[0].isolated is False
    assert log.get(number).audit == {"isolated": False}


def test_owners_do_not_see_each_other(log):
    mine, other = log.add(run_record(), "me"), log.add(run_record(), "you")
    assert [row.id for row in log.search(owner="me").rows] == [mine]
    assert log.get(other, "me") is None
    log.delete(other, "me")
    log.replace(other, run_record("Stolen?"), "me")
    log.clear("me")
    assert log.get(other, "you") == run_record()
    assert log.search(owner="me").total == 0


def test_deleted_text_is_gone_from_the_disk(log):
    secret = "BLUE-LANTERN-SECRET"
    number = log.add(run_record(secret, board=board((CardValues(secret),))))
    log.add(run_record("Another."))
    log.delete(number)
    assert log.get(number) is None
    for path in log.path.parent.iterdir():
        assert secret.encode() not in path.read_bytes()


def test_settings_are_kept(log):
    assert log.setting("keep", "1") == "1"
    log.set("keep", "0")
    log.set("keep", "off")
    assert RunLog(log.path).setting("keep", "1") == "off"


def test_a_file_of_an_older_schema_is_brought_forward_with_its_rows(log):
    number = log.add(run_record())
    step = "ALTER TABLE runs ADD COLUMN mark TEXT NOT NULL DEFAULT 'none'"
    newer = RunLog(log.path, migrations=(*MIGRATIONS, step))
    assert newer.get(number) == run_record()
    with sqlite3.connect(log.path) as file:
        assert file.execute("SELECT mark FROM runs").fetchall() == [("none",)]
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
    with pytest.raises(HistoryUnavailable) as caught:
        log.search()
    assert caught.value.reason == "newer"


def test_a_migration_that_fails_leaves_the_file_as_it_was(log):
    number = log.add(run_record())
    with pytest.raises(HistoryUnavailable):
        RunLog(log.path, migrations=(*MIGRATIONS, "DROP TABLE settings; NONSENSE")).search()
    assert log.get(number) == run_record()
    assert log.setting("keep", "1") == "1"


def write(path: Path, name: str) -> None:
    for number in range(25):
        RunLog(path).add(run_record(f"{name} {number}"))


def test_two_processes_and_two_threads_write_at_once(log):
    """Forked, since a fresh process would spend its time on imports and write alone."""
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write, args=(log.path, name)) for name in "ab"]
    writers += [threading.Thread(target=write, args=(log.path, name)) for name in "cd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers[:2]] == [0, 0]
    assert log.search().total == 100


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Without the rights of root, which may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    for parent in (folder, *folder.parents):
        if parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(parent.stat().st_mode | 0o005)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def spoilt(log: RunLog, how: str) -> None:
    log.add(run_record())
    if how == "no database":
        log.path.write_bytes(b"this is no database at all" * 100)
    elif how == "cut off":
        log.path.write_bytes(log.path.read_bytes()[:3000])
    elif how == "overwritten":
        content = bytearray(log.path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        log.path.write_bytes(content)
    elif how == "a folder":
        log.path.unlink()
        log.path.mkdir()


@pytest.mark.parametrize("how", ["no database", "cut off", "overwritten", "a folder"])
def test_a_spoilt_file_is_one_clear_sentence(log, how):
    spoilt(log, how)
    for action in (log.search, lambda: log.add(run_record())):
        with pytest.raises(HistoryUnavailable) as caught:
            action()
    for language in LANGUAGES:
        told = sentence(caught.value, language)
        assert str(log.path) in told
        assert "\n" not in told


def test_a_read_only_file_is_one_clear_sentence(log):
    log.add(run_record())
    log.path.chmod(0o444)
    log.path.parent.chmod(0o555)
    with as_nobody(log.path.parent), pytest.raises(HistoryUnavailable) as caught:
        log.add(run_record())
    log.path.parent.chmod(0o755)
    assert caught.value.reason == "read_only"
    assert "may not be written" in sentence(caught.value, EN)


def test_a_place_that_cannot_be_made_is_one_clear_sentence(tmp_path):
    (tmp_path / "home").write_text("a file where the folder should be")
    with pytest.raises(HistoryUnavailable) as caught:
        RunLog(tmp_path / "home" / "history.sqlite").search()
    assert caught.value.reason == "read_only"
