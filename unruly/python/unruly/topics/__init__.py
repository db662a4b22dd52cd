"""What is asked of a run, one folder for each subject; `unruly.topics.registry` lists them.

A topic imports `unruly.base`, `unruly.stats`, `unruly.tables` and `unruly.drawing`, never another
topic. What two topics need is in `unruly.base`.
"""
