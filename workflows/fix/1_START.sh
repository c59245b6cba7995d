# Makes a small project with mistakes in fix-example/ and works there. A run that starts at TEST leaves this out.
set -e
rm -rf fix-example
mkdir -p fix-example/tests
cd fix-example

cat > cart.py <<'PYTHON'
"""A shopping cart; all amounts are in cents."""


def total(items, discount=0):
    """The price of (price, quantity) pairs, less a discount in per cent."""
    amount = 0
    for price, quantity in items:
        amount = price * quantity
    return amount - amount * discount / 100
PYTHON

cat > tests/test_cart.py <<'PYTHON'
import unittest

from cart import total


class Total(unittest.TestCase):
    def test_an_empty_cart_costs_nothing(self):
        self.assertEqual(total([]), 0)

    def test_all_items_count(self):
        self.assertEqual(total([(250, 2), (100, 1)]), 600)

    def test_a_discounted_price_is_whole_cents_rounded_half_up(self):
        prices = [total([(price, 1)], discount=10) for price in (5, 15, 104)]
        self.assertEqual([str(price) for price in prices], ["5", "14", "94"])
PYTHON

echo '<reset cd="fix-example">TEST</reset>'
