"""Tools a policy can call from within an episode."""
