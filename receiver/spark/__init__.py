"""Spark as this program starts it: a Java, a JVM, a context, a folder for scratch data. Knows nothing of what is run on it."""
