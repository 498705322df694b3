"""The commands of what operators use: what-if plans, load, the demonstration and the tour."""
