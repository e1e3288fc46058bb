"""What the GPU kernels stand on: memory, arrays, streams, compiling and launching.

Start reading at ``array.py`` and ``device.py``. Nothing here imports ``numba.cuda`` before a GPU
(or its simulator) is asked for.
"""
