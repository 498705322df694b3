"""Workloads for experiments and benchmarks: publications, subscriptions and advertisements from a seeded generator."""
