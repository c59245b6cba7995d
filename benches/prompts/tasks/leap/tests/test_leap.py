import unittest

from leap import is_leap


class Leap(unittest.TestCase):
    def test_divisible_by_four(self):
        self.assertTrue(is_leap(2024))

    def test_centuries_are_not(self):
        self.assertFalse(is_leap(1900))

    def test_every_fourth_century_is(self):
        self.assertTrue(is_leap(2000))

    def test_others_are_not(self):
        self.assertFalse(is_leap(2023))
