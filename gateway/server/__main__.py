"""A worker process, started by the parent and by nobody else.

Knows: where its main function is.
Must not know: anything else.
"""

import sys

from gateway.server.worker import main

sys.exit(main(sys.argv[1:]))
