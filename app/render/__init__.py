"""Values -> what the page shows: HTML with all text escaped, JSON for the canvases. Pure; one file a thing shown."""

from app.render.answer import answer
from app.render.kv import kv_gauge
from app.render.mask import cell, mask_story, prompt_texts
from app.render.masthead import masthead
from app.render.screen import screen
from app.render.text import escape, figure, imported, mib, note, sentence_line, to_json
from app.render.verdict import summary, verdict

__all__ = [
    "answer", "cell", "escape", "figure", "imported", "kv_gauge", "mask_story",
    "masthead", "mib", "note", "prompt_texts", "screen", "sentence_line", "summary", "to_json", "verdict",
]
