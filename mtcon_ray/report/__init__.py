"""The report of a finished or running sweep, one HTML page: `build.build_report`."""
