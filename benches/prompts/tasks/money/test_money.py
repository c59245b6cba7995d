import unittest

from money import Money


class TestMoney(unittest.TestCase):
    def test_add(self):
        self.assertEqual(Money(150, "EUR") + Money(50, "EUR"), Money(200, "EUR"))

    def test_other_currency(self):
        with self.assertRaises(ValueError):
            Money(1, "EUR") + Money(1, "USD")

    def test_text(self):
        self.assertEqual(str(Money(1234, "EUR")), "12.34 EUR")
        self.assertEqual(str(Money(-5, "USD")), "-0.05 USD")

    def test_order(self):
        self.assertLess(Money(1, "EUR"), Money(2, "EUR"))


if __name__ == "__main__":
    unittest.main()
