"""What a broker has on disk, without a disk: records, files, and what is in what is left of them.

Both worlds use it: the network puts the bytes onto a real disk (`network.publication_log`), the simulator onto one that
loses, tears and flips them (`simulation.disk`). Read `log_format` first, then `log_contents` and `log_book`.
"""
