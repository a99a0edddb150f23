"""What runs inside the sandbox's process: the standard library only, for nothing else can be imported there."""
