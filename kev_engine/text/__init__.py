"""Questions to tokens and tokens to text: the chat template, detokenization, stop strings."""
