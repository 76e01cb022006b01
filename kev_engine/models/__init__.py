"""Where models come from, how they load, and which of them can be packed."""

from kev_engine.models.scan import scan_once

scan_once()
