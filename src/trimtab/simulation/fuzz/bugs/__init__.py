"""Deliberate mistakes in the core, to show that the fuzzer and the explorer would find them. Begin with `core_bugs`."""
