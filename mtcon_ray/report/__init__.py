"""A finished or running sweep as one page: `build.build_report`."""
