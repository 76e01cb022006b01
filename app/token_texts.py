"""TokenTexts: the text of single tokens, looked up once each, for pictures that show thousands of them ten times a
second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.live_engine import LiveEngine
    from kev_engine import Engine


class TokenTexts:
    """`texts(token_ids)` as the engine's `token_texts`; another model starts another memory."""

    def __init__(self, engine: Engine | LiveEngine) -> None:
        self._engine = engine
        self._digest = ""
        self._known: dict[int, str] = {}

    def __call__(self, token_ids: Sequence[int]) -> list[str]:
        digest = self._engine.info.digest
        if digest != self._digest:
            self._digest, self._known = digest, {}
        known = self._known
        missing = sorted(set(token_ids) - known.keys())
        known.update(zip(missing, self._engine.token_texts(missing), strict=True))
        return [known[token_id] for token_id in token_ids]
