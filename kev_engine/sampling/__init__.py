"""How the next token is chosen, per question."""
