"""Attention backends: each executes a StepPlan; `dense` defines what is correct."""
