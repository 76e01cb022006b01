"""What the buttons of the memory tab do."""

from __future__ import annotations

import csv
import io
import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.planner import Plan, PlanForm, make_plan, read_numbers
from kev_engine import KevError
from kev_engine.errors import InvalidField
from kev_engine.models.shape import parse_config, read_shape
from kev_engine.models.sources import GGUF, HF, MODELSCOPE, full_name, read_config

if TYPE_CHECKING:
    from app.live_engine import LiveEngine

_log = logging.getLogger(__name__)
PASTED = "config.json"
MAX_CONFIG_CHARACTERS = 1_000_000
EMBEDDED = "embedded"


@dataclass(frozen=True)
class MemoryHandlers:
    """The planner on one engine, which only says where models come from. A public page reads no local folders."""

    engine: LiveEngine
    is_public: bool = False

    @property
    def loaded_model(self) -> str:
        """The name under which the planner finds the model that is loaded."""
        name = str(self.engine.config.model)
        return EMBEDDED if self.is_public and not self._is_open(name) else name

    def plan(self, form: PlanForm) -> Plan:
        """Raises a KevError that names the field or the reason."""
        asked = read_numbers(form)
        if form.config.strip():
            if len(form.config) > MAX_CONFIG_CHARACTERS:
                raise InvalidField("config", form.config[:40], f"at most {MAX_CONFIG_CHARACTERS:,} characters are read")
            values, name = parse_config(form.config), PASTED
        elif form.model.strip():
            values, name = self._found(form.model.strip())
        else:
            raise InvalidField("model", "", "name a model, or paste its config.json")
        shape = read_shape(values, name)
        if asked.parameters is not None:
            shape = replace(shape, num_parameters=asked.parameters)
        return make_plan(shape, form, asked)

    def _found(self, spec: str) -> tuple[dict[str, object], str]:
        config = self.engine.config
        if self.is_public and not self._is_open(spec):
            way_out = "this public page takes embedded, hf:owner/name and modelscope:owner/name"
            raise InvalidField("model", spec, way_out)
        found = read_config(spec, config.home, config.hub)
        return found.values, found.name

    def _is_open(self, spec: str) -> bool:
        """Whether the name leads to nothing on this machine's disk but what the engine itself keeps there."""
        named = full_name(spec, self.engine.config.hub)
        return named == EMBEDDED or (named.startswith((HF, MODELSCOPE)) and not named.startswith(GGUF))


def as_csv(plan: Plan) -> str:
    """The table as a CSV file, one row a case."""
    rows = plan.rows()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(plan: Plan) -> str:
    """The plan as a JSON file."""
    return json.dumps(plan.as_json(), ensure_ascii=False, indent=1) + "\n"


def told(error: Exception) -> KevError:
    """What the page can say about any failure; one that nobody foresaw is logged with its trace."""
    if isinstance(error, KevError):
        return error
    _log.error("the planner failed", exc_info=error)
    return InvalidField("config", type(error).__name__, "it could not be planned; the log says why")
