"""Where results go: published into the overlay."""
