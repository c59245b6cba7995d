import unittest

from ranges import clamp, span


class Ranges(unittest.TestCase):
    def test_inside(self):
        self.assertEqual(clamp(5, 1, 9), 5)

    def test_below(self):
        self.assertEqual(clamp(-5, 1, 9), 1)

    def test_above(self):
        self.assertEqual(clamp(50, 1, 9), 9)

    def test_wrong_order(self):
        self.assertRaises(ValueError, clamp, 1, 9, 0)

    def test_span_is_kept(self):
        self.assertEqual(span([3, 1, 7]), 6)
