"""A function run once for a whole batch of its arguments: what ``vmap`` does op by op.

While a ``Batch`` stands behind the verbs, arrays have the shapes of one element. Their memory is
that of all elements, and a launch is one for all of them. Start reading at ``verbs.Batch``.
"""
