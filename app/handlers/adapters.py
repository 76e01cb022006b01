"""What the buttons of the adapters tab do. Every handler takes the Session and yields what changed on the page."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from app import adapters_form, render
from app.adapters_form import AdapterForm, AdaptersFixed
from app.adapters_view import BASE_ID
from app.board import Board, CardValues
from app.forms import LOCAL, PUBLIC, Limits, parse_all
from app.handlers.progress import newest
from app.handlers.run import TICK_SECONDS, failure
from app.i18n import say
from app.live_engine import LiveEngine
from app.run_view import CardView, RunView
from app.session import Session
from app.told import Told
from kev_engine import Finished, KevError, PlanMade, RunFinished
from kev_engine.errors import EngineClosed

if TYPE_CHECKING:
    from kev_engine import Engine
    from kev_engine.adapters.pool import AdapterInfo

Change = Mapping[str, str]
Progress = tuple[str, int, int]


@dataclass(frozen=True)
class AdapterHandlers:
    """The tab's actions on one engine. On a public page the adapters are those it was started with: a visitor may
    neither add, rename, replace nor unload what others use, and no path of the machine is read."""

    engine: Engine | LiveEngine
    is_public: bool = False

    @property
    def limits(self) -> Limits:
        return PUBLIC if self.is_public else LOCAL

    def screen(self, session: Session) -> Change:
        """Everything of the tab that changes, by the name of its place."""
        session.meet(self.engine.info.digest)
        view, language = session.adapters, session.language
        infos = self.engine.adapters.list()
        pictured = self._pictured(session)
        return {
            "table": render.adapter_table(infos, view, self.engine.adapters.size, self.is_public, language),
            "head": render.adapters_head(self.is_public, language),
            "told": render.adapters_told(view, True, language),
            "said": render.adapters_told(view, False, language),
            "answers": render.comparison(view, language),
            "summary": render.summary(view.compared, language),
            "picture": render.mask_story(
                pictured, self.engine.token_texts, lambda info: info.adapter or say(language, "base")),
            "texts": render.prompt_texts(pictured, self.engine.token_texts),
        }

    def speak(self, session: Session, language: str) -> Change:
        """Everything that the tab shows, in `language`."""
        session.language = language
        return self.screen(session)

    def add(
        self, session: Session, name: str, source: str, uploads: Sequence[str], replacing: str = ""
    ) -> Iterator[Change]:
        """Read an adapter and give it the name, or that of `replacing` instead; the last change says how it went."""
        try:
            self._require_private()
            form = adapters_form.parse(name, source, uploads, self.engine.adapters.names(), replacing)
        except KevError as error:
            yield self.tell(session, error, is_form=True)
            return
        for step in self._load(form):
            if isinstance(step, KevError):
                yield self.tell(session, step, is_form=True)
            elif isinstance(step, tuple):
                yield self.tell(session, _progress(step), is_form=True)
            else:
                yield self.tell(session, *_loaded(step, is_new=not replacing), is_form=True)

    def rename(self, session: Session, old: str, new: str) -> Change:
        """Call the adapter `old` `new`."""
        new = new.strip()
        try:
            self._require_private()
            if new != old and new in self.engine.adapters.names():
                raise adapters_form.AdapterNameTaken(f"{new!r} is loaded already.", name=new)
            if not new:
                raise adapters_form.NoAdapterName("the adapter needs a name.")
            self.engine.adapters.rename(old, new)
        except KevError as error:
            return self.tell(session, error)
        return self.tell(session, *([Told("adapters.renamed", {"old": old, "new": new})] if new != old else []))

    def unload(self, session: Session, name: str) -> Change:
        """Take the name away; runs that use the adapter go on."""
        try:
            self._require_private()
            holds = self.engine.adapters.info(name).holds
            self.engine.adapters.unload(name)
        except KevError as error:
            return self.tell(session, error)
        key = "adapters.unloaded_held" if holds else "adapters.unloaded"
        return self.tell(session, Told(key, {"name": name, "count": holds}))

    def effects(self, session: Session) -> Iterator[Change]:
        """Measure how far each adapter moves the logits of a fixed prompt."""
        yield self.tell(session, Told("adapters.measuring"))
        try:
            found = self.engine.adapter_effects()
        except Exception as error:
            yield self.tell(session, failure(error))
            return
        session.adapters = replace(session.adapters, effects={effect.version: effect for effect in found})
        dead = [effect.name for effect in found if effect.is_dead]
        yield self.tell(session, Told("adapters.measured", {"count": len(found), "dead": len(dead)}))

    def compare(self, session: Session, question: str, max_new_tokens: str) -> Iterator[Change]:
        """Ask the base and every adapter the same question, greedily, in one run."""
        names = self.engine.adapters.names()
        card = CardValues(question, temperature="0", max_new_tokens=max_new_tokens)
        cards = {BASE_ID: card, **{name: replace(card, adapter=name) for name in names}}
        parsed = parse_all(Board(cards), names, self.limits)
        number = session.view.number
        view = RunView(number, {asked.id: CardView(run=number) for asked in parsed.questions})
        mistake = next(iter(parsed.mistakes.values()), None)
        session.adapters = replace(session.adapters, compared=view, mistake=mistake, told=())
        shown: dict[str, str] = {}
        yield self._changed(session, shown)
        if mistake is not None:
            return
        try:
            session.comparing = self.engine.stream(parsed.questions)
            yield from self._watch(session, shown)
        except Exception as error:
            session.adapters = replace(session.adapters, compared=replace(view, notice=failure(error)))
            yield self._changed(session, shown)
        finally:
            stream, session.comparing = session.comparing, None
            if stream is not None:
                stream.close()

    def stop(self, session: Session) -> None:
        """End the comparison; its answers keep what they have."""
        if session.comparing is not None:
            session.comparing.cancel()

    def _watch(self, session: Session, shown: dict[str, str]) -> Iterator[Change]:
        assert session.comparing is not None
        drawn_at, info = 0.0, self.engine.info
        for event in session.comparing:
            if self.engine.info is not info:
                raise EngineClosed
            session.adapters = replace(session.adapters, compared=session.adapters.compared.after(event))
            if isinstance(event, PlanMade | Finished | RunFinished) or time.monotonic() - drawn_at >= TICK_SECONDS:
                drawn_at = time.monotonic()
                yield self._changed(session, shown)

    def _load(self, form: AdapterForm) -> Iterator[Progress | AdapterInfo | KevError]:
        """How far a download is, about ten times a second; then the adapter or what is wrong with it."""
        steps: SimpleQueue[Progress | AdapterInfo | KevError] = SimpleQueue()

        def load() -> None:
            try:
                steps.put(self.engine.load_adapter(form.name, form.source, lambda *step: steps.put(step)))
            except Exception as error:
                steps.put(failure(error))

        threading.Thread(target=load, name="kev-adapter", daemon=True).start()
        while True:
            step = newest(steps)
            yield step
            if not isinstance(step, tuple):
                return
            time.sleep(TICK_SECONDS)

    def _pictured(self, session: Session) -> RunView:
        """The run that was started last in this browser tab: the comparison, or that of the run tab."""
        compared = session.adapters.compared
        return compared if compared.plan is not None and compared.number >= session.view.number else session.view

    def _require_private(self) -> None:
        if self.is_public:
            raise AdaptersFixed("the adapters of this public page are fixed.")

    def tell(self, session: Session, *told: Told | KevError, is_form: bool = False) -> Change:
        """The screen, with these sentences about the last action."""
        session.adapters = replace(session.adapters, told=told, is_form=is_form)
        return self.screen(session)

    def _changed(self, session: Session, shown: dict[str, str]) -> Change:
        """What differs from `shown`, which is brought up to date."""
        changed = {name: value for name, value in self.screen(session).items() if shown.get(name) != value}
        shown.update(changed)
        return changed


def _progress(step: Progress) -> Told:
    stage, done, total = step
    if stage != "download" or not total:
        return Told("adapters.working")
    return Told("adapters.downloading", {"done": render.mib(done), "total": render.mib(total)})


def _loaded(info: AdapterInfo, is_new: bool) -> list[Told]:
    facts = {"name": info.name, "version": info.version, "modules": info.modules, "rank": max(info.ranks)}
    told = [Told("adapters.added" if is_new else "adapters.replaced", facts)]
    if info.untouched:
        told.append(Told("adapters.warn.untouched", {"count": info.untouched}))
    if info.mixes_halves:
        told.append(Told("adapters.warn.halves", {"dtype": info.dtype, "base": info.base_dtype}))
    if info.flaw is not None:
        told.append(Told(f"adapters.warn.flaw.{info.flaw}"))
    return told
