"""Looking at a running program: views of a context, drawings, profiles."""
