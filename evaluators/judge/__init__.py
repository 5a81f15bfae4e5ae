"""The judge: a process that knows the reference, makes the data, holds the clock and gives the verdict.

It never loads anything of a candidate's. Torch is imported here and in the baseline worker that it forks, nowhere else.
"""
