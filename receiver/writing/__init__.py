"""Files as they are written, rotated, undone and put away. Knows nothing of Spark, nor how messages came."""
