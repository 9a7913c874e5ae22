"""Spark for a receiver: a Java, a JVM, a context, and what executors of a cluster need."""
