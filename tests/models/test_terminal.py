"""The line on the terminal: rewritten in place, never flooding a log."""

from __future__ import annotations

import io

from kev_engine.models.terminal import TerminalProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_one_line_rewritten_and_cleared():
    terminal = Terminal()
    progress = TerminalProgress(terminal)
    progress("download", 0, 2 * 2**20)
    progress("download", 2 * 2**20, 2 * 2**20)
    progress("load", 3, 272)
    progress.end()
    shown = terminal.getvalue()
    assert "\n" not in shown
    assert [part.removesuffix("\x1b[K") for part in shown.split("\r")[1:]] == [
        "kev: download 0 of 2 MiB", "kev: download 2 of 2 MiB", "kev: load 3 of 272", ""]


def test_a_log_gets_whole_lines_and_few_of_them():
    log = io.StringIO()
    progress = TerminalProgress(log)
    for done in range(1000):
        progress("convert", done, 1001)
    progress("load", 0, 0)
    progress.end()
    assert log.getvalue() == "kev: convert 0 of 1,001\nkev: load\n"
