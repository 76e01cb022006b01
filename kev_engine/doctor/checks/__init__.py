"""One file a family of faults. Each check is a pure function from Facts to findings."""
