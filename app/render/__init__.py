"""Values -> what the page shows: HTML with all text escaped, JSON for the canvases. Pure; one file a thing shown."""

from app.render.adapters import comparison
from app.render.adapters import head as adapters_head
from app.render.adapters import table as adapter_table
from app.render.adapters import told as adapters_told
from app.render.answer import answer
from app.render.doctor import doctor_map, doctor_window
from app.render.doctor_findings import doctor_findings, doctor_repair
from app.render.doctor_strip import doctor_strip
from app.render.fault_lab import lab_findings, lab_verdict
from app.render.kv import kv_gauge
from app.render.mask import cell, mask_story, prompt_texts
from app.render.masthead import masthead
from app.render.screen import screen
from app.render.text import escape, figure, imported, mib, note, sentence_line, to_json
from app.render.verdict import summary, verdict

__all__ = [
    "adapter_table", "adapters_head", "adapters_told", "answer", "cell", "comparison", "doctor_findings",
    "doctor_map", "doctor_repair", "doctor_strip", "doctor_window", "escape", "figure", "imported", "kv_gauge",
    "lab_findings", "lab_verdict", "mask_story", "masthead", "mib", "note", "prompt_texts", "screen", "sentence_line",
    "summary", "to_json", "verdict",
]
