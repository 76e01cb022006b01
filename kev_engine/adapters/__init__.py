"""LoRA adapters: what a file says (files, settings, weights), which are loaded (pool), and who gets which (router)."""
