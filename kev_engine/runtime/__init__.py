"""From questions to answers: sequences, the scheduler, the forward, the engine, its proofs."""
