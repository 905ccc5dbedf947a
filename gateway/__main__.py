"""``python -m gateway …``: the same as ``leaderboard-gateway …``.

Knows: where the command line is.
Must not know: anything else.
"""

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.exit(main())
