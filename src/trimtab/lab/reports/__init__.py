"""Reports over all runs of a folder, computed by Spark SQL. Begin with `report`."""
