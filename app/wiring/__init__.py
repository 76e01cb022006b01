"""Which event calls which handler; one file a tab, called from app/build.py."""
