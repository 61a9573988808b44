"""The report of a finished or running sweep, one HTML page: `build.build_report`."""

import logging

# Else it prints two lines if its folder below HOME cannot be written. It then uses another one.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
