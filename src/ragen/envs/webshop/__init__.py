"""WebShop: importing it registers the presets ``webshop`` and ``webshop-15``."""

from ragen.envs.webshop.env import WebShop, WebShopSettings

__all__ = ["WebShop", "WebShopSettings"]
