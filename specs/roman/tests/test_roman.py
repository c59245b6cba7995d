import unittest

from roman import to_roman


class ToRoman(unittest.TestCase):
    def test_sums(self):
        self.assertEqual(to_roman(1), "I")
        self.assertEqual(to_roman(3), "III")
        self.assertEqual(to_roman(1666), "MDCLXVI")

    def test_subtractive_forms(self):
        for number, numeral in [(4, "IV"), (9, "IX"), (40, "XL"), (90, "XC"), (400, "CD"), (900, "CM")]:
            self.assertEqual(to_roman(number), numeral)
        self.assertEqual(to_roman(3999), "MMMCMXCIX")

    def test_out_of_range(self):
        for number in (0, -1, 4000):
            with self.assertRaises(ValueError):
                to_roman(number)


if __name__ == "__main__":
    unittest.main()
