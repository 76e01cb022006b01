"""Single faults by the names of docs/doctor.md: each edits one thing in a right batch and names its code."""

from tests.doctor.faults import boundaries, cells, masks, models, padding, positions, tokens
from tests.doctor.faults.edit import FAULTS, Edit, Unfit

__all__ = ["FAULTS", "Edit", "Unfit", "boundaries", "cells", "masks", "models", "padding", "positions", "tokens"]
