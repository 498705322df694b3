"""Spark: the session, a Java for it, what it sees of stored data, and what its errors mean. Begin with `session`."""
