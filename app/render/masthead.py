"""The top of the page as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.i18n import say, sentence
from app.render.text import escape

if TYPE_CHECKING:
    from kev_engine import KevError
    from kev_engine.runtime.engine import EngineInfo
    from kev_engine.sampling.temperature import TemperatureVersion


def masthead(
    info: EngineInfo, default: TemperatureVersion, language: str, mistake: KevError | None = None,
    is_fixed: bool = False,
) -> str:
    """The name, what is loaded (a button that opens the model's panel, unless the model `is_fixed`), the default
    temperature with its version, and what was wrong with a new one."""
    dtype = info.dtype if info.kv_dtype == info.dtype else f"{info.dtype}, KV {info.kv_dtype}"
    loaded = escape(" · ".join([info.model, dtype, info.backend, say(language, "threads", count=info.threads)]))
    temperature = say(language, "temperature_default", value=f"{default.value:.2f}", version=default.version)
    model = f'<span class="chip">{loaded}</span>' if is_fixed else (
        '<button type="button" class="chip" data-open="model-panel" aria-expanded="false" aria-controls="model-panel" '
        f'title="{escape(say(language, "model.open"))}">{loaded}</button>')
    return (f'<a class="skip" href="#cards">{escape(say(language, "skip"))}</a>'
            f"<h1>{escape(say(language, 'title'))}</h1>{model}"
            f'<span class="chip">{escape(temperature)}</span>'
            + (f'<span class="mistake" role="alert">{escape(sentence(mistake, language))}</span>' if mistake else ""))
