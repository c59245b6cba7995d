"""Prints the crates that are linked into the program, with their licences and the texts of these."""

import json
import pathlib
import subprocess

tree = ["cargo", "tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
lines = subprocess.run(tree, check=True, capture_output=True, text=True).stdout.splitlines()
linked = {tuple(line.split()[:2]) for line in lines if line.strip()}
metadata = ["cargo", "metadata", "--locked", "--format-version", "1"]
packages = json.loads(subprocess.run(metadata, check=True, capture_output=True, text=True).stdout)["packages"]
seen = {}
print("The program contains the following crates, each under the licence that is named.")
for package in sorted(packages, key=lambda package: package["name"]):
    name, version = package["name"], package["version"]
    if package["source"] is None or (name, f"v{version}") not in linked:
        continue
    print(f"\n{'=' * 78}\n{name} {version}: {package['license']}")
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE")):
            text = path.read_text(errors="replace").strip()
            first = seen.setdefault(" ".join(text.split()), f"{name} {version}, {path.name}")
            is_new = first == f"{name} {version}, {path.name}"
            print(f"\n{'-' * 20} {path.name}\n{text if is_new else 'The same text as in ' + first}")
