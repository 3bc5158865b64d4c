"""What large language models take, measured on a few blocks of their shape with random weights.

Nothing is downloaded: a config alone gives the shape. Forward passes are measured at several depths and steps at
several N, each in a process of its own. Both grow along a line, and how far points are from it says how far the
extrapolation is to be believed.
"""
