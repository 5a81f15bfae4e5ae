"""The judge: a process that knows the reference, makes the data, holds the clock and gives the verdict.

It never loads a candidate's code. Torch is imported only here and in the baseline worker that it forks.
"""
