//! The names of files and settings that can steer a test run: words with white space between them.

use std::path::Path;
use std::sync::LazyLock;

/// Files of which any change counts, by their last components.
const WHOLE: &str = "
    conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini tox.toml setup.py noxfile.py .coveragerc
    Makefile makefile GNUmakefile justfile Justfile .justfile Rakefile rakefile Rakefile.rb .rspec
    .babelrc .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pnpm-workspace.yaml .nycrc .taprc deno.json deno.jsonc bunfig.toml
    .cargo/config.toml .cargo/config .config/nextest.toml rust-toolchain rust-toolchain.toml build.rs go.work
    CMakeLists.txt CMakePresets.json CTestTestfile.cmake CTestCustom.cmake meson.build
    pom.xml gradle.properties phpunit.xml phpunit.xml.dist mix.exs";

/// The same, by prefix of the name.
const WHOLE_STEMS: &str = "
    jest.config. vitest.config. vitest.workspace. vite.config. karma.conf. babel.config. .babelrc. .mocharc .nycrc.
    playwright.config. cypress.config. ava.config. wdio.conf. build.gradle settings.gradle";

/// Fields of `pyproject.toml`. `*` is any key or index; a word that ends with it is a prefix.
pub(super) const PYPROJECT: &str = "
    tool.pytest* tool.tox* tool.nox* tool.coverage* tool.hatch.env* tool.pdm.scripts tool.pdm.plugins tool.poe*
    tool.taskipy* tool.rye.scripts tool.pixi.tasks tool.uv.sources tool.poetry.plugins tool.flit.entrypoints
    project.entry-points build-system.backend-path";

/// Fields of `Cargo.toml`.
pub(super) const CARGO: &str = "
    cargo-features package.autotests package.autobins package.autoexamples package.autobenches package.autolib
    package.build package.workspace package.forced-target package.default-target package.default-run
    lib.test lib.doctest lib.harness lib.path test bench bin.*.test bin.*.harness example.*.test example.*.harness
    features.default profile.test profile.dev workspace.members workspace.exclude workspace.default-members patch replace";

/// Tables of dependencies in `Cargo.toml`; of an entry only its source counts, if that is not a registry.
pub(super) const CARGO_DEPENDENCIES: &str = "
    dependencies dev-dependencies dev_dependencies build-dependencies build_dependencies workspace.dependencies";

/// Fields of `package.json` besides scripts.
pub(super) const PACKAGE: &str = "
    jest vitest mocha ava tap nyc c8 karma jasmine cypress playwright babel config workspaces overrides resolutions pnpm";

pub(super) const PACKAGE_DEPENDENCIES: &str =
    "dependencies devDependencies optionalDependencies peerDependencies";

/// Scripts that run before any test when packages are installed.
pub(super) const PACKAGE_INSTALL: &str =
    "scripts.prepare scripts.preinstall scripts.install scripts.postinstall";

/// Sections of `setup.cfg`, by prefix.
pub(super) const SETUP_SECTIONS: &str = "
    tool: pytest tox testenv coverage nosetests unittest aliases test options.entry_points build_py";

/// Directives of `go.mod` that steer nothing. A new `go.mod` itself counts: `./...` ends where another module begins.
pub(super) const GO_PLAIN: [&str; 3] = ["go", "require", "retract"];

/// The words of a table.
pub(super) fn words(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.split_whitespace()
}

/// Whether any change of a file counts, by `name`, its last component, and the whole path.
pub(super) fn counts_as_a_whole(name: &str, path: &Path) -> bool {
    static FILES: LazyLock<Vec<&str>> = LazyLock::new(|| words(WHOLE).collect());
    static STEMS: LazyLock<Vec<&str>> = LazyLock::new(|| words(WHOLE_STEMS).collect());
    let is_file = |known: &&str| known.ends_with(name) && path.ends_with(known);
    STEMS.iter().any(|stem| name.starts_with(stem)) || FILES.iter().any(is_file)
}
