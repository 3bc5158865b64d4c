"""Cost of large language models, measured on a few blocks of their shape with random weights.

Nothing is downloaded: the config defines the shape. Forward passes are measured at several depths and steps at several
N, each in its own process. Both grow linearly, and the distance of the points from the line tells how reliable the
extrapolation is.
"""
