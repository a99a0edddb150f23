"""``python -m ragen``: the command line, where its own command is not on the path."""

import sys

from ragen.cli.main import main

sys.exit(main())
