"""Questions about a corpus, answered with the help of a search."""

from ragen.envs.wiki.env import Wiki, WikiSettings

__all__ = ["Wiki", "WikiSettings"]
