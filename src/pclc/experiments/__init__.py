"""Experiments: what is trained and attacked to show something, from data to table."""
