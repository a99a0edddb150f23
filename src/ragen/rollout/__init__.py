"""Collecting episodes: lock-step multi-turn rollouts, context policies, segments, demonstrations."""
