"""One file a tab: each lays its components out and returns them by name. Events are wired in app/build.py."""
