"""A machine for PTX: the compiled CUDA kernels run on the CPU, and every access is checked.

``parse`` reads the text, ``assemble`` makes words of it, ``machine`` runs them warp by warp,
``memory`` looks at each address, and ``device`` stands behind numbagrad's doorway. What an
instruction computes is a line of ``table``. Start reading at ``device.PTX``.
"""
