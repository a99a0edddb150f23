"""Algorithms: pure functions of arrays (advantages, losses, filters, KL, reductions); no I/O, no config, no model."""
