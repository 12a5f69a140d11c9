"""The figures that are drawn from the tables of experiments.

In a checkout of the project ``loca-theory figures`` and :func:`loca_theory.figure` draw them like
the others; an installed package does not have them.
"""
