"""The Spark data source `trimtab`: publications of the overlay and results of channels in any Spark job.

Begin with `data_source`.
"""
