"""WebShop in a browser: played by a person, or an agent's stored episode click by click (`ragen shop`)."""
