"""LoRA adapters: read and checked, kept in a pool, applied per token."""
