"""From messages to lines: judged by their spans, sorted by live file, committed. Knows nothing of Spark."""
