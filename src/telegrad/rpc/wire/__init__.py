"""What travels between two workers: frames, arrays, values, functions, failures. No I/O."""
