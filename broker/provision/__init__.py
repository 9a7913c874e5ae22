"""Streams and buckets as declared: a plan of what differs (`plan`), carried out (`apply`)."""
