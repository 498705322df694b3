"""The emergency application of the Big Active Data paper, end to end. Begin with `application`."""
