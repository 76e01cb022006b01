"""The paged KV cache: blocks and their tables, and the tensors behind them."""
