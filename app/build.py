"""The page: Blocks, its tabs, and which wiring each of them gets (app/wiring, one file a tab)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.forms import LOCAL, PUBLIC
from app.handlers.adapters import AdapterHandlers
from app.handlers.api import ApiHandlers
from app.handlers.doctor import DoctorHandlers
from app.handlers.fault_lab import FaultLabHandlers
from app.handlers.history import HistoryHandlers, run_log
from app.handlers.memory import MemoryHandlers
from app.handlers.model import ModelHandlers
from app.handlers.run import RunHandlers
from app.i18n import EN, LANGUAGES, ZH, texts
from app.live_engine import LiveEngine
from app.panels import adapters as adapters_panel
from app.panels import doctor as doctor_panel
from app.panels import fault_lab as fault_lab_panel
from app.panels import history as history_panel
from app.panels import memory as memory_panel
from app.panels import model as model_panel
from app.panels import run as run_panel
from app.panels.words import Words
from app.plan_examples import plan_examples
from app.presets import presets
from app.session import Session
from app.theme import workbench_theme
from app.wiring import adapters as adapters_wiring
from app.wiring import api as api_wiring
from app.wiring import doctor as doctor_wiring
from app.wiring import fault_lab as fault_lab_wiring
from app.wiring import history as history_wiring
from app.wiring import memory as memory_wiring
from app.wiring import model as model_wiring
from app.wiring import page as page_wiring
from app.wiring import run as run_wiring
from app.wiring.download import outbox
from app.wiring.page import Page

if TYPE_CHECKING:
    from kev_engine import Engine

_ASSETS = Path(__file__).parents[1] / "assets"
_LANGUAGE_NAMES = (("EN", EN), ("中文", ZH))


def build_app(
    engine: Engine | LiveEngine, is_public: bool | None = None, history_folder: Path | None = None
) -> gr.Blocks:
    """The workbench over a loaded engine. Launch with page_options().

    `is_public` None: as the environment says. `history_folder` None: the engine's home.
    """
    is_public = public_by_environment(os.environ) if is_public is None else is_public
    # The tabs see the engine of the moment, whichever model was chosen in the page.
    engine = engine if isinstance(engine, LiveEngine) else LiveEngine(engine)
    history = HistoryHandlers(run_log(history_folder or engine.config.home, is_public), is_public)
    handlers = RunHandlers(engine, PUBLIC if is_public else LOCAL, history)

    def leave(state: Session) -> None:
        state.leave()
        history.leave(state)

    words = Words(_translations())
    examples = presets(engine.adapters.names())
    first = next(iter(examples.values()))
    with gr.Blocks(title="Kev Workbench", analytics_enabled=False, fill_width=True) as demo:
        # First, since Gradio gives the next event of a name that is taken another one.
        api_wiring.wire(ApiHandlers(engine, handlers.limits))
        session = gr.State(Session(preset=first.key), delete_callback=leave)
        with gr.Row(elem_id="top"):
            masthead = gr.HTML(handlers.masthead(EN), elem_id="masthead")
            temperature = words.textbox(
                "temperature_default_set", hint="temperature_default_hint", show_label=False, container=False,
                max_lines=1, elem_id="temperature-default", visible=not is_public)
            language = gr.Radio(_LANGUAGE_NAMES, value=EN, show_label=False, label=words.translate("language"),
                                container=False, elem_id="language")
            help_button = words.button("keys", elem_id="help", elem_classes="icon")
            theme = words.button("theme", elem_id="theme", elem_classes="icon")
        choice = model_panel.build(words, engine.config.model) if not is_public else None
        page = Page(demo, session, words, language)
        download = outbox(page)
        with gr.Tabs(elem_id="tabs") as tabs:
            with words.tab("tab.run", id="run") as run_tab:
                panel = run_panel.build(words, examples, first, handlers.facts(), handlers.blank(EN))
                run_wiring.wire(page, panel, handlers, examples, run_tab)
                lab = FaultLabHandlers(engine, PUBLIC if is_public else LOCAL)
                fault_lab_wiring.wire(page, fault_lab_panel.build(words, lab.blank()), lab, panel.board)
            with words.tab("tab.doctor", id="doctor"):
                doctor = DoctorHandlers(engine, is_public)
                doctor_wiring.wire(page, doctor_panel.build(words, doctor.blank()), doctor)
            planner = MemoryHandlers(engine, is_public)
            plans = plan_examples(planner.loaded_model)
            memory = memory_panel.build(words, plans, next(iter(plans.values())))
            memory_wiring.wire(page, memory, planner, plans, download)
            with words.tab("tab.adapters", id="adapters") as adapters_tab:
                adapters = AdapterHandlers(engine, is_public)
                adapters_wiring.wire(page, adapters_panel.build(words, adapters, first.key), adapters, adapters_tab)
            history_wiring.wire(page, history_panel.build(words), history, panel, handlers, tabs, download)
        if choice is not None:
            model_wiring.wire(page, choice, ModelHandlers(engine, engine.config), masthead, handlers.masthead, panel,
                              handlers)
        page_wiring.wire(page, masthead, theme, help_button, handlers.masthead)
        if not is_public:
            page_wiring.wire_temperature(page, temperature, masthead, panel, handlers)
    return demo


def public_by_environment(env: Mapping[str, str]) -> bool:
    """Whether strangers use this page: KEV_PUBLIC says so, else a Hugging Face Space and a ModelScope studio are."""
    said = env.get("KEV_PUBLIC", "").strip()
    if said:
        return said not in ("0", "false", "no")
    return bool(env.get("SPACE_ID")) or env.get("MODELSCOPE_ENVIRONMENT") == "studio"


def page_options() -> dict[str, Any]:
    """What `launch` needs beside the address: the look, the scripts, the words; nothing that leaves this machine."""
    catalogue = json.dumps({name: texts(name) for name in LANGUAGES}, ensure_ascii=False).replace("<", "\\u003c")
    script = (_ASSETS / "js" / "page.js").read_text("utf-8")
    return {
        "theme": workbench_theme(), "css_paths": sorted((_ASSETS / "css").glob("*.css")), "i18n": _translations(),
        "head": f"<script>window.kevCatalogue = {catalogue};\n{script}</script>",
        "footer_links": [], "ssr_mode": False, "pwa": False, "favicon_path": _ASSETS / "images" / "mark.svg",
        # Else the launch asks for the page once, and gives up where a busy machine takes three seconds to answer.
        "_frontend": False,
    }


def _translations() -> gr.I18n:
    """Gradio looks a browser's language up exactly, so Chinese stands under both names that browsers send."""
    return gr.I18n(**{EN: texts(EN), ZH: texts(ZH), "zh": texts(ZH)})
