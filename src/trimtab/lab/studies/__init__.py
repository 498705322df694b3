"""Studies: what is run, with which seeds, side by side or as tasks of Spark.

The studies themselves are TOML files here.
"""
