"""What is stored: the catalog, and Delta tables of datasets, results and dead letters. Begin with `stored_data`."""
