"""Text between environments and policies: prompts, the reply parser, and the incremental chat renderer."""
