"""Records that both worlds write, as Parquet: files, the runs in them, and the story of a client or session.

Begin with `files`.
"""
