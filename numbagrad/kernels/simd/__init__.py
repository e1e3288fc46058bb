"""Mathematical functions as formulas that LLVM vectorises; ``simd_math.py`` has their table."""
