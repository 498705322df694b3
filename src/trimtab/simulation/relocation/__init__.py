"""The experiments of the publisher relocation paper: a tree of brokers, stock publishers, and where subscribers are."""
