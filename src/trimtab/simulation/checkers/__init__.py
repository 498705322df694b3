"""What must, may and must not happen in a run, known from a global view. Begin with `deliveries`."""
