"""Benchmarks: every claim about speed or memory comes from here, with its conditions, as a ratio in the same run."""
