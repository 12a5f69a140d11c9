"""PEFT's benchmark of methods: configurations of LoCA for it, and a small benchmark of its form.

``launch.py`` runs PEFT's own scripts with LoCA. ``python -m experiments.method_comparison`` trains
LoCA and other methods on a small task and writes results of the same form.
"""
