use rpn::evaluate;

#[test]
fn sums_and_products() {
    assert_eq!(evaluate("3 4 +"), Ok(7.0));
    assert_eq!(evaluate("2 3 4 * -"), Ok(-10.0));
    assert_eq!(evaluate("  1.5   2 / "), Ok(0.75));
}

#[test]
fn what_is_wrong_is_said() {
    assert!(evaluate("1 x +").unwrap_err().contains("x"));
    for line in ["", "+", "1 +", "1 2"] {
        assert!(evaluate(line).is_err(), "{line:?}");
    }
}

#[test]
fn nothing_is_divided_by_zero() {
    assert!(evaluate("1 0 /").is_err());
}
