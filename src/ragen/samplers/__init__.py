"""Samplers: token ids in, sampled ids with their log-probabilities out."""
