"""Sudoku: importing it registers the presets ``sudoku`` and ``sudoku-9``."""

from ragen.envs.sudoku.env import Sudoku, SudokuSettings

__all__ = ["Sudoku", "SudokuSettings"]
