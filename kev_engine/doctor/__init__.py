"""The Mask Doctor: what attention really receives, what is wrong with it, and the repair."""
