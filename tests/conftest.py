"""Settings for all tests."""

from hypothesis import settings

# A failing example is printed with the line that replays it; slow machines do not make tests fail.
settings.register_profile("trimtab", print_blob=True, deadline=None)
settings.load_profile("trimtab")
