"""What every test may rely on."""

import signal

# A suite that a shell runs in the background is started with Ctrl-C ignored, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
