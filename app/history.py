"""RunLog: the runs that are kept, in one SQLite file. Safe for several threads and several processes.

Every call opens the file for itself, so nothing is shared between threads; a second writer waits for the first. A row
belongs to an `owner`: "" on a page at home, a tab's own token on a public one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.run_record import RunRecord, from_json
from kev_engine import KevError

WAIT_SECONDS = 10
MIGRATIONS = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, at TEXT NOT NULL, model TEXT NOT NULL,
        questions INTEGER NOT NULL, first_question TEXT NOT NULL, isolated INTEGER, search TEXT NOT NULL,
        record TEXT NOT NULL
    );
    CREATE INDEX runs_by_owner ON runs (owner, id);
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
)
"""Step k brings a file of schema version k to k + 1; a step that was released is never changed."""


class HistoryUnavailable(KevError):
    """The file cannot be read or written; `reason` is read_only, corrupt, newer, busy or other."""

    code = "history_unavailable"

    def __init__(self, file: str, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"the history in {file} cannot be used ({detail}).", file=file, reason=reason, detail=detail)


@dataclass(frozen=True)
class RunRow:
    """One run in the list. `isolated` None: not audited."""

    id: int
    at: str
    model: str
    num_questions: int
    first_question: str
    isolated: bool | None


@dataclass(frozen=True)
class Found:
    """The newest rows of a search, and how many there are in all."""

    rows: tuple[RunRow, ...]
    total: int


class RunLog:
    """The runs kept in `path`, which is made when the first is. `name` is what errors call the file.

    Every method raises HistoryUnavailable where the file cannot be used.
    """

    def __init__(self, path: Path, name: str | None = None, migrations: Sequence[str] = MIGRATIONS) -> None:
        self.path = path
        self.name = str(path) if name is None else name
        self._migrations = migrations

    def add(self, record: RunRecord, owner: str = "") -> int:
        """Keep a run and return its number."""
        first = next(iter(record.board.cards.values()))
        with self._open() as file:
            cursor = file.execute(
                "INSERT INTO runs (owner, at, model, questions, first_question, isolated, search, record)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (owner, record.at, str(record.engine.get("model", "")), len(record.board.cards), first.question[:200],
                 _isolated(record), record.search_text, record.to_json()))
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def replace(self, run_id: int, record: RunRecord, owner: str = "") -> None:
        """Keep `record` in the place of a run, where it is still there: after an audit."""
        with self._open() as file:
            file.execute("UPDATE runs SET isolated = ?, record = ? WHERE id = ? AND owner = ?",
                         (_isolated(record), record.to_json(), run_id, owner))

    def get(self, run_id: int, owner: str = "") -> RunRecord | None:
        """One run, or None where it is gone."""
        with self._open() as file:
            row = file.execute("SELECT record FROM runs WHERE id = ? AND owner = ?", (run_id, owner)).fetchone()
        return None if row is None else from_json(row[0])

    def search(self, text: str = "", owner: str = "", limit: int = 100) -> Found:
        """The newest runs that hold every word of `text` somewhere in questions, answers, model or adapters."""
        words = text.casefold().split()
        where = " AND ".join(["owner = ?", *(r"search LIKE ? ESCAPE '\'" for _ in words)])
        given = [owner, *(f"%{_literal(word)}%" for word in words)]
        with self._open() as file:
            total = file.execute(f"SELECT count(*) FROM runs WHERE {where}", given).fetchone()[0]
            rows = file.execute(
                "SELECT id, at, model, questions, first_question, isolated FROM runs"
                f" WHERE {where} ORDER BY id DESC LIMIT ?", [*given, limit]).fetchall()
        return Found(tuple(RunRow(*row[:5], None if row[5] is None else bool(row[5])) for row in rows), total)

    def delete(self, run_id: int, owner: str = "") -> None:
        with self._open() as file:
            file.execute("DELETE FROM runs WHERE id = ? AND owner = ?", (run_id, owner))

    def clear(self, owner: str = "") -> None:
        """Delete every run of an owner."""
        with self._open() as file:
            file.execute("DELETE FROM runs WHERE owner = ?", (owner,))

    def setting(self, name: str, default: str) -> str:
        with self._open() as file:
            row = file.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else str(row[0])

    def set(self, name: str, value: str) -> None:
        with self._open() as file:
            file.execute("INSERT INTO settings VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                         (name, value))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction, committed at the end, rolled back where the block raises."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)) as file:
                file.execute("PRAGMA journal_mode = WAL")
                file.execute("PRAGMA synchronous = NORMAL")
                # What was deleted is overwritten, not only unlinked.
                file.execute("PRAGMA secure_delete = ON")
                self._migrate(file)
                file.execute("BEGIN IMMEDIATE")
                try:
                    yield file
                except BaseException:
                    file.execute("ROLLBACK")
                    raise
                file.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise HistoryUnavailable(self.name, _reason(error), str(error)) from error

    def _migrate(self, file: sqlite3.Connection) -> None:
        """Bring the file to the newest schema, one step a transaction; another process may be doing the same."""
        if _version(file) > len(self._migrations):
            detail = f"it has version {_version(file)} and this workbench knows {len(self._migrations)}"
            raise HistoryUnavailable(self.name, "newer", detail)
        while _version(file) < len(self._migrations):
            file.execute("BEGIN IMMEDIATE")
            try:
                found = _version(file)
                if found < len(self._migrations):
                    for statement in self._migrations[found].split(";"):
                        file.execute(statement)
                    file.execute(f"PRAGMA user_version = {found + 1}")
            except BaseException:
                file.execute("ROLLBACK")
                raise
            file.execute("COMMIT")


def _version(file: sqlite3.Connection) -> int:
    return int(file.execute("PRAGMA user_version").fetchone()[0])


def _isolated(record: RunRecord) -> int | None:
    return None if record.audit is None else int(bool(record.audit.get("isolated")))


def _literal(word: str) -> str:
    """The word as LIKE finds it by its letters alone."""
    return word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


def _reason(error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return "read_only"
    if isinstance(error, OSError):
        return "read_only"
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return "corrupt"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "busy"
    return "other"
