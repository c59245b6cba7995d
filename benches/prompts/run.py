#!/usr/bin/env python3
"""Measures the prompts of files mode with a real model: every task of tasks/ is run through the binary.

    python3 benches/prompts/run.py --orchestrator BINARY [--base-url URL] [--only NAME ...] [--keep DIR] [--json FILE]

Prints one row per task and the sums. README.md says what the columns mean and how to get a small model.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
OPENING = re.compile(r'^[ \t]*<file[ \t]+path="[^"]*"(?:[ \t]+end="([^"]+)")?[ \t]*>[ \t]*$')
NAMES_GIVEN = re.compile(r'^[ \t]*<(?:file|delete)[ \t]+path="(?:tests\b|test_)')
DELETION = re.compile(r'^[ \t]*<delete[ \t]+path="[^"]*"[ \t]*/>[ \t]*$')


def is_in_format(text, was_cut_off):
    """Whether an answer has at least one block and closes every block, judged alike for every binary."""
    blocks, end = 0, None
    for line in text.splitlines():
        opening = OPENING.match(line)
        if end is not None:
            end = None if line == end else end
        elif opening:
            blocks, end = blocks + 1, opening.group(1) or "</file>"
        elif DELETION.match(line):
            blocks += 1
    return blocks > 0 and end is None and not was_cut_off


def share_of_given(text, given):
    """The share of an answer's bytes in lines that stand in the protected files, or in tags that name one."""
    lines = text.splitlines()
    spent = sum(len(line) + 1 for line in lines if line.strip() in given or NAMES_GIVEN.match(line))
    return spent / max(1, sum(len(line) + 1 for line in lines))


def run(task, arguments, folder):
    """Runs one task in a fresh root and returns its row."""
    root = folder / task.name
    root.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8", "OPENAI_BASE_URL": arguments.base_url}
    command = [arguments.orchestrator, "run", "--spec", task / "spec.yaml", "--root", root, "--json", "--quiet"]
    began = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    result = json.loads(done.stdout)
    tests = "\n".join(path.read_text() for path in sorted(task.rglob("test_*.py")))
    given = {line.strip() for line in tests.splitlines() if line.strip()}
    row = {"task": task.name, "outcome": result["outcome"], "reason": result["reason"], "retries": result["retry_count"],
           "answers": 0, "in_format": 0, "input": 0, "output": 0, "given": 0.0, "names_given": 0,
           "seconds": round(time.monotonic() - began)}
    for line in next((root / "logs").glob("*.log")).read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "ModelAnswered" or not event.get("answer"):
            continue
        answer = event["answer"]
        text = "".join(block.get("text", "") for block in answer["content"])
        row["answers"] += 1
        row["in_format"] += is_in_format(text, answer["stop"] == "max_tokens")
        row["names_given"] += any(NAMES_GIVEN.match(line) for line in text.splitlines())
        row["input"] += answer["usage"]["input"] + answer["usage"]["cache_read"] + answer["usage"]["cache_write"]
        row["output"] += answer["usage"]["output"]
        row["given"] += answer["usage"]["output"] * share_of_given(text, given)
    row["given"] = round(row["given"])
    return row


def shown(row):
    share = 100 * row["given"] / max(1, row["output"])
    return (f"| {row['task']} | {row['outcome']} | {row['retries']} | {row['in_format']} of {row['answers']} | {row['names_given']} "
            f"| {row['input']} | {row['output']} | {share:.0f} % | {row['seconds']} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--orchestrator", required=True)
    parser.add_argument("--base-url", default="http://127.0.0.1:8091/v1")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--keep", help="a folder that keeps the roots, with their logs")
    parser.add_argument("--json", help="a file for the rows")
    arguments = parser.parse_args()
    tasks = [path for path in sorted((HERE / "tasks").iterdir()) if not arguments.only or path.name in arguments.only]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print("| task | outcome | retries | in the format | names tests | input tokens | output tokens | spent on given | seconds |")
        print("|---|---|---|---|---|---|---|---|---|")
        for task in tasks:
            rows.append(run(task, arguments, folder))
            print(shown(rows[-1]), flush=True)
    total = {key: sum(row[key] for row in rows) for key in ("retries", "answers", "in_format", "names_given", "input", "output", "given", "seconds")}
    solved = sum(row["outcome"] == "SUCCESS" for row in rows)
    print(shown({**total, "task": "all", "outcome": f"{solved} of {len(rows)} solved"}))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
