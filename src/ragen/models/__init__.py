"""Models: names to directories, loading, device and compute type, attention for decoding."""
