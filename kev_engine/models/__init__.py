"""Where models come from, how they load, and which of them can be packed."""
