"""How much memory the weights of a model will take, known before they are fetched or read."""

from __future__ import annotations

from pathlib import Path

from kev_engine.errors import FootprintRefused
from kev_engine.models import gguf
from kev_engine.models.footprint import in_bytes
from kev_engine.models.shape import read_shape
from kev_engine.models.sources import GGUF, full_name, read_config


def weight_bytes(spec: str, dtype: str, home: Path, hub: str | None = None) -> int | None:
    """Bytes of the weights in `dtype`; None where the configuration does not tell how many there are.

    Of a model on a hub only its configuration is fetched. Raises as `read_config` and `read_shape` do.
    """
    spec = full_name(spec, hub)
    if spec.startswith(GGUF):
        file = Path(spec.removeprefix(GGUF)).expanduser()
        return in_bytes(gguf.read_header(file).num_weights, dtype) if file.is_file() else None
    found = read_config(spec, home, hub)
    try:
        shape = read_shape(found.values, found.name)
    except FootprintRefused:
        return None
    return None if shape.num_parameters is None else in_bytes(shape.num_parameters, dtype)
