"""What the panel under the masthead does: choose another model while the page stays open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from app.handlers.progress import newest
from app.handlers.run import TICK_SECONDS, failure
from app.told import Told
from kev_engine import Engine, EngineConfig, KevError
from kev_engine.errors import InvalidField, LoadCancelled
from kev_engine.models.memory import require_memory
from kev_engine.models.need import weight_bytes

if TYPE_CHECKING:
    from app.live_engine import LiveEngine


ENDS = ("model.loaded", "model.cancelled")
"""What is told when a load is over, beside its error."""


class ModelFixed(KevError):
    """A visitor of a public page wants to change what all visitors use."""

    code = "model_fixed"


class ModelLoading(KevError):
    """Another model is being loaded, by this tab or another one."""

    code = "model_loading"


@dataclass(frozen=True)
class ModelHandlers:
    """The actions on the engine itself, which all tabs share; on a public page nobody may change it.

    `first` is what the engine was started with: the adapters named there belong to its model.
    """

    engine: LiveEngine
    first: EngineConfig
    is_public: bool = False
    _loading: threading.Lock = field(default_factory=threading.Lock)
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def model(self) -> str:
        """How the model of the moment is named."""
        return self.engine.config.model

    def choose(self, spec: str) -> Iterator[Told | KevError]:
        """Load the model that `spec` names and answer with it from then on; the last value says how it went.

        Until the new one is whole the old one answers, and it stays where the new one fails.
        """
        spec = spec.strip()
        try:
            self._require_private()
            if not spec:
                raise InvalidField("model", spec, "name embedded, a folder, hf:owner/name, modelscope:owner/name or "
                                                  "gguf:path")
            if not self._loading.acquire(blocking=False):
                raise ModelLoading("a model is being loaded; wait until it is there, or cancel it.")
            self._cancelled.clear()
        except KevError as error:
            yield error
            return
        steps: SimpleQueue[Told | KevError] = SimpleQueue()
        # A thread of its own: the model arrives even if the tab that asked for it is closed.
        threading.Thread(target=self._load, args=(spec, steps), name="kev-model", daemon=True).start()
        while True:
            step = newest(steps)
            yield step
            if isinstance(step, KevError) or step.key in ENDS:
                return
            time.sleep(TICK_SECONDS)

    def cancel(self) -> Told | None:
        """End the load that is under way, whoever asked for it, at its next step; what to say meanwhile."""
        self._cancelled.set()
        return Told("model.cancelling") if self._loading.locked() else None

    def _load(self, spec: str, steps: SimpleQueue[Told | KevError]) -> None:
        def tell(told: Told) -> None:
            if self._cancelled.is_set():
                raise LoadCancelled(spec)
            steps.put(told)

        try:
            tell(Told("model.checking", {"name": spec}))
            config = self._config(spec)
            needed = weight_bytes(spec, config.dtype, config.home, config.hub)
            if needed is not None:
                require_memory(spec, needed, self.engine.free_bytes())
            engine = Engine(config, lambda *step: tell(_progress(spec, needed, *step)))
            if self._cancelled.is_set():
                engine.close()
                raise LoadCancelled(spec)
            self.engine.replace(engine)
            info = engine.info
            steps.put(Told("model.loaded", {"name": info.model, "seconds": f"{info.load_seconds:.1f}"}))
        except LoadCancelled:
            steps.put(Told("model.cancelled", {"name": spec, "model": self.engine.info.model}))
        except Exception as error:
            steps.put(failure(error))
        finally:
            self._loading.release()

    def _config(self, spec: str) -> EngineConfig:
        adapters = self.first.adapters if spec == self.first.model else {}
        return replace(self.first, model=spec, adapters=adapters, temperature=self.engine.temperature.current().value)

    def _require_private(self) -> None:
        if self.is_public:
            raise ModelFixed("the model of this public page is fixed.")


def _progress(spec: str, needed: int | None, stage: str, done: int, total: int) -> Told:
    """How far a stage is: bytes of a download, else parts; nothing but its name where the total is not known."""
    if stage == "download" and total:
        return Told("model.downloading", {"name": spec, "done": done, "total": total})
    return Told("model.converting" if stage == "convert" else "model.reading",
                {"name": spec, "needed": needed, "done": done, "total": total})
