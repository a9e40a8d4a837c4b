from __future__ import annotations

import sys
import time

from .checkpoint import DataLossError
from .place import Place, parse_arguments
from .ways import WAYS, serve_parameters


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    options = parse_arguments()
    place = Place(options)
    place.listen_to_signals()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    time.sleep(options.start_s)
    place.hang_if_asked("start")
    try:
        serve_parameters(place) if options.job_name == "ps" else WAYS[options.way](place)
    except DataLossError as error:
        sys.exit(f"tensorflow.python.framework.errors_impl.DataLossError: {error}")


main()
