"""Reads {"schema": ..., "specs": [...]} and prints for each spec the first errors of the schema, as a JSON list of lists."""

import json
import sys

from jsonschema import Draft202012Validator

given = json.load(sys.stdin)
Draft202012Validator.check_schema(given["schema"])
validator = Draft202012Validator(given["schema"])
print(json.dumps([[error.message[:200] for error in validator.iter_errors(spec)] for spec in given["specs"]]))
