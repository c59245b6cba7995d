import unittest

from item import Item
from stock import cheapest, value

ITEMS = [Item('pen', 2, 10), Item('cup', 5, 3)]


class Stock(unittest.TestCase):
    def test_total(self):
        self.assertEqual(Item('pen', 2, 10).total(), 20)

    def test_value(self):
        self.assertEqual(value(ITEMS), 35)

    def test_cheapest(self):
        self.assertEqual(cheapest(ITEMS), 'pen')

    def test_nothing(self):
        self.assertEqual((value([]), cheapest([])), (0, None))
