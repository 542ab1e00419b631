"""Maps of nine data sets, by Curvae and by others, and how faithful they are: `python -m benchmarks.maps --help`."""
