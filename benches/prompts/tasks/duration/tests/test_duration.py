import unittest

from duration import seconds


class Duration(unittest.TestCase):
    def test_hours_and_minutes(self):
        self.assertEqual(seconds('1h30m'), 5400)

    def test_seconds_alone(self):
        self.assertEqual(seconds('45s'), 45)

    def test_empty(self):
        self.assertRaises(ValueError, seconds, '')

    def test_wrong_order(self):
        self.assertRaises(ValueError, seconds, '5s1h')

    def test_no_unit(self):
        self.assertRaises(ValueError, seconds, '12')
