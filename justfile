# The commands of this project; `just` lists them.

_default:
    @just --list

# Format, clippy, unit tests and fast integration tests.
check:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings
    cargo test --lib
    cargo test --test it -- build_loop:: checks:: cli:: docs:: flags:: tidy::

# Everything, as .ci/run.
test:
    cargo fmt --check && cargo clippy --all-targets -- -D warnings && RUSTDOCFLAGS="-D warnings" cargo doc --no-deps && cargo test

# All benchmarks.
bench:
    cargo bench

# A tarball and a Debian package in target/dist.
dist:
    packaging/dist
