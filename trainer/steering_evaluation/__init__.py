"""What turning experts up does to texts, over strengths, beside random experts and random directions; start at
``build``."""
