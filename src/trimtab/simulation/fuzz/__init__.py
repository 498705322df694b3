"""Random small networks under churn and faults, each run to rest and checked. Begin with `fuzz`."""
