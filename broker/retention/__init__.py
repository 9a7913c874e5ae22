"""Retention while space is short: purges what every receiver has committed, oldest first. Front door: `worker`, `purging`."""
