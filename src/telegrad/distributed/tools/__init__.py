"""Looking at what runs: views of a context, drawings, profiles."""
