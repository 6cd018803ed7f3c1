"""The first error in what real tools printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.output.first_error import Excerpt, FirstError

HERE = Path(__file__).parent
# As bytes: a text file would lose the carriage returns.
OUTPUTS = {path.stem: path.read_bytes().decode() for path in sorted((HERE / "outputs").glob("*.txt"))}

# What the excerpt must contain; after "but not", what would mislead or waste its lines.
BUT_NOT = "but not"
ESSENTIALS: dict[str, tuple[str, ...]] = {
    "ansible": ("TASK [Install the settings]", "missing.conf", BUT_NOT, "old release", "PLAY RECAP"),
    "ansible_command": ("TASK [Migrate the database]", "relation users does not exist"),
    "argparse": ("unrecognized arguments: --colour",),
    "asan": ("heap-buffer-overflow", "asan.c:2", BUT_NOT, "Shadow bytes"),
    "biome": ("a.js:2:12 lint/suspicious/noDoubleEquals", "Using ==", "> 2 │", BUT_NOT, "noUnusedVariables"),
    "black": ("cannot parse: syntax.py:1:6",),
    "bash_denied": ("perm.sh: line 2", "Permission denied"),
    "bash_killed": ("line 2:", "Killed"),
    "bash_not_found": ("build.sh: line 3: mkae: command not found",),
    "bash_segfault": ("Segmentation fault",),
    "bash_syntax": ("line 3: syntax error",),
    "bash_unbound": ("NOPE: unbound variable",),
    "bash_xtrace": ("+ ls missing_dir", "No such file"),
    "bun_test": ("expect(total).toBe(10);", "Expected: 10", "Received: 5", BUT_NOT, "(pass)"),
    "c_assert": ("as.c:2: main: Assertion `n > 0' failed.",),
    "cargo_borrow": ("error[E0106]", "--> src/main.rs:1:33", "^ expected named", BUT_NOT, "warning", "not compile"),
    "cargo_build": ("error[E0425]", "--> src/main.rs:4:20", "coutn);", BUT_NOT, "warning", "E0308"),
    "cargo_run_panic": ("panicked at src/main.rs:4:21", "index out of bounds", BUT_NOT, "rust_begin_unwind"),
    "cargo_test": ("tests::adds", "src/lib.rs:13:9", "left: 0", "right: 4", BUT_NOT, "... FAILED", "warning"),
    "clang_error": ("main.c:6:5: error", "cuont++;", "^", BUT_NOT, "warning", "7:13"),
    "clang_link": ("undefined reference to `compute'", "in function `main'", BUT_NOT, "exit code"),
    "cmake_build": ("main.c:6:5: error", "cuont++;", BUT_NOT, "gmake", "7:13"),
    "cmake_configure": ("CMakeLists.txt:3 (find_package)", 'package configuration file provided by "Qt99"'),
    "cp_missing": ("cannot stat 'nowhere.txt'",),
    "ctest": ("Test #1: total", "t.c:7: expected 10, got 5", BUT_NOT, "Test #2"),
    "curl_refused": ("Failed to connect to 127.0.0.1 port 9",),
    "cxx_terminate": ("std::runtime_error", "what():  no config"),
    "dash_not_found": ("nosuchtool: not found",),
    "django_check": ("No module named 'orders'", "manage.py", BUT_NOT, "registry.py"),
    "django_test": ("test_home", "tests.py", "404 != 200", BUT_NOT, "FAILED (failures"),
    "docker_build": ("/bin/sh: nosuchtool: not found", "exit code: 127", BUT_NOT, "transferring"),
    "docker_build_copy": ('"/missing.txt" not found',),
    "esbuild": ('Could not resolve "./nope.js"', "index.js:2:14", "import x"),
    "eslint": ("/srv/app/js/e/a.js", "2:5   error", BUT_NOT, "warning", "✖"),
    "flake8": ("linted.py:1:1: F401",),
    "gcc_error": ("main.c:6:5: error", "cuont++;", "^~~~~", BUT_NOT, "warning", "7:13"),
    "gcc_include": ("config.h: No such file", "#include"),
    "gcc_werror": ("-Werror=unused-variable", "int x = 1", BUT_NOT, "cc1:"),
    "git_fatal": ("not a git repository",),
    "git_merge": ("CONFLICT (content): Merge conflict in f",),
    "git_rejected": ("[rejected]", "failed to push some refs"),
    "go_build": ('cmd/app/main.go:5:2: imported and not used: "os"',),
    "go_missing_module": ("cannot find module providing package",),
    "go_run_panic": ("index out of range [5]", "main.main()", "main.go:8"),
    "go_test": ("--- FAIL: TestAdd", "calc_test.go:10: Add(2, 2) = 0, want 4", BUT_NOT, "TestTable"),
    "go_test_build": ("shop_test.go:6:11: cannot use", BUT_NOT, "build failed"),
    "go_test_panic": ("--- FAIL: TestPanic", "nil map", "panic_test.go:7", BUT_NOT, "testing.go"),
    "go_test_verbose": ("calc_test.go:18: n = 1", "--- FAIL: TestTable", BUT_NOT, "PASS"),
    "gradle_compile": ("App.java:1: error: incompatible types", BUT_NOT, "went wrong"),
    "gradle_plugin": ("Plugin with id 'jav' not found", "build.gradle' line: 1", BUT_NOT, "--stacktrace"),
    "gradle_test": ("AppTest > addsUp FAILED", "AppTest.java:5", BUT_NOT, "went wrong"),
    "gxx_template_full": ("tpl.cpp:3:48", "error: no match for ‘operator-’", BUT_NOT, "note:"),
    "java_caused_by": ("start-up failed", "no route to db1", "App.java:2"),
    "java_exception": ("NullPointerException", "App.java:9"),
    "java_logged": ("SEVERE: cannot serve", "pool exhausted", "Server.java:4", BUT_NOT, "slow start", "probe"),
    "java_oom": ("OutOfMemoryError",),
    "javac": ("Bad.java:3: error: incompatible types", 'return "x"', "^", BUT_NOT, "Bad.java:4"),
    "jest": ("cart › adds up", "Expected: 10", "Received: 5", "> 10 |", "cart.test.js:10:26", BUT_NOT, "✕", "loads"),
    "jest_missing": ("Cannot find module './missing'", "> 1 |"),
    "ld_library": ("cannot find -lnosuch", BUT_NOT, "collect2"),
    "ld_multiple": ("multiple definition of `total'", BUT_NOT, "collect2"),
    "ld_undefined": ("undefined reference to `compute'", BUT_NOT, "collect2"),
    "lua": ("a.lua:2: attempt to index a nil value", "in local 'load'"),
    "make_gcc": ("main.c:6:5: error", BUT_NOT, "make:", "warning"),
    "make_missing_script": ("./run_tests.sh: No such file", BUT_NOT, "Error 127"),
    "make_no_rule": ("No rule to make target 'nothere'",),
    "make_only": ("make: *** [Makefile:9: silent] Error 1",),
    "minitest": ("CartTest#test_total [cart_test.rb:4]", "Expected: 10", "Actual: 5", BUT_NOT, "test_load"),
    "mocha": ("adds up", "5 !== 10", "test.js:5:74", BUT_NOT, "loads", "passing"),
    "mvn_compile": ("App.java:[1,30] incompatible types", BUT_NOT, "BUILD", "Failed to execute goal"),
    "mvn_test": ("addsUp(AppTest)", "expected:<10> but was:<1>", "AppTest.java:5", BUT_NOT, "BUILD"),
    "mypy": ("typed.py:2: error: Incompatible return value", BUT_NOT, "Found 1"),
    "ninja_build": ("main.c:6:5: error", BUT_NOT, "ninja:"),
    "node_a": ("a.js:2", "return config.db.host;", "TypeError", "at connect", BUT_NOT, "node:internal"),
    "node_cause": ("bad settings", "[cause]: SyntaxError", BUT_NOT, "node:internal"),
    "node_miss": ("Cannot find module 'left-pad-nope'", "miss.js"),
    "node_oom": ("JavaScript heap out of memory",),
    "node_test": ("not ok 2 - adds", "2 !== 3", "node.test.js:3:1", BUT_NOT, "node:internal"),
    "node_test_spec": ("2 !== 3", "node.test.js:3:29", BUT_NOT, "node:internal"),
    "npm8_eresolve": ('peer react@"17.0.2" from react-dom@17.0.2', BUT_NOT, "_logs"),
    "npm_ci": ("can only install with an existing package-lock.json", BUT_NOT, "--install-strategy", "_logs"),
    "npm_e404": ("404 Not Found", "outlast-no-such-package-x", BUT_NOT, "_logs", "notice"),
    "npm_eresolve": ('peer react@"17.0.2" from react-dom@17.0.2', "Found: react@18.3.1", BUT_NOT, "_logs"),
    "npm_run": ("a.js:2", "TypeError", BUT_NOT, "npm"),
    "npm_tsc_missing": ("tsc: not found",),
    "perl": ("a.pl line 4",),
    "php_parse": ('unexpected token ";"', "line 2"),
    "php_uncaught": ("Uncaught TypeError", "app.php:3", "#0"),
    "pip_build": ("KeyError: 'SHOP_VERSION'", 'File "<string>", line 3', BUT_NOT, "See above", "_in_process"),
    "pip_missing": ("No matching distribution found for nopackage_x",),
    "playwright": ("cart.spec.js:3:1 › adds up", "Expected: 10", "Received: 5", "> 5 |", "cart.spec.js:5:17"),
    "pnpm_404": ("outlast-no-such-package-x",),
    "prettier": ("bad.js: SyntaxError: Unexpected token",),
    "pyright": ("typed.py:2:12 - error", "not assignable", BUT_NOT, "1 error"),
    "pytest_collect_import": ("collect/test_import.py:1", "No module named 'shop.checkout'", BUT_NOT, "importlib"),
    "pytest_collect_syntax": ("test_syntax.py", "def test_x(:", "SyntaxError: invalid syntax"),
    "pytest_default": (">       assert cart.total() == 10", "E       assert 5 == 10", "tests/test_cart.py:23",
                       BUT_NOT, "FFF", "a log line of level error", "test_load"),
    "pytest_fixture": ("ERROR at setup of test_query", "ConnectionRefusedError: localhost:5432"),
    "pytest_tb_line": ("assert 5 == 10", "tests/test_cart.py:23"),
    "pytest_tb_long": ('cart.load("missing.json")', "with open(path)", "FileNotFoundError", "shop/cart.py:15"),
    "pytest_tb_native": ("test_total", 'test_cart.py", line 23', "assert 5 == 10", BUT_NOT, "pluggy"),
    "pytest_tb_no": ("FAILED tests/test_cart.py::test_total - assert 5 == 10", BUT_NOT, "FFF"),
    "pytest_tb_short": ("tests/test_cart.py:23: in test_total", "E   assert 5 == 10"),
    "pytest_verbose": (">       assert cart.total() == 10", "E       assert 5 == 10", BUT_NOT, "FAILED", "PASSED"),
    "python_chained_during": ("Connection refused", "During handling", "no attribute 'code'"),
    "python_chained_from": ("[Errno 111] Connection refused", "direct cause", "cannot load the settings from db1"),
    "python_doctest": ("Failed example:", "total([1, 2])", "Expected:", "Got:"),
    "python_group": ("ValueError: bad value 1", "group.py", BUT_NOT, "bad value 2", "runners.py"),
    "python_json": ('main.py", line 3, in parse', "JSONDecodeError", BUT_NOT, 'line 346, in loads'),
    "python_logged": ("ERROR app: request failed", "KeyError: 'user'", BUT_NOT, "0 errors", "shutting down"),
    "python_recursion": ("RecursionError", "return f(n + 1)"),
    "python_syntax": ("syntax.py", "def f(:", "SyntaxError"),
    "python_unittest": ("ERROR: test_boom", "KeyError: 'x'", BUT_NOT, "test_sum"),
    "python_warned": ("FileNotFoundError", "warned.py\", line 11", BUT_NOT, "cache", "failed 0"),
    "rspec": ("Cart adds up", "expected: 10", "got: 5", "spec/cart_spec.rb:11", BUT_NOT, "loads"),
    "ruby": ("a.rb:2:in `fetch': key not found: :port (KeyError)", "from a.rb:2:in `load'"),
    "ruby_errno": ("No such file", "Errno::ENOENT", "from e.rb:2"),
    "ruby_syntax": ("s.rb:2: syntax error",),
    "ruff": ("I001", "--> linted.py:1:1", "import os, sys", BUT_NOT, "F401"),
    "ruff_concise": ("linted.py:1:1: I001",),
    "shellcheck": ("a.sh line 6", "SC1033 (error)", BUT_NOT, "SC2086"),
    "sqlite": ("no such table: users",),
    "ssh_refused": ("Connection refused",),
    "tar": ("not in gzip format",),
    "terraform_apply": ("main.tf line 2", "./migrate.sh: not found", BUT_NOT, "Plan:"),
    "terraform_validate": ("undeclared input variable", "main.tf line 3", "var.regoin", BUT_NOT, "undeclared resource"),
    "tsc": ("a.ts(2,30): error TS2322",),
    "tsc_pretty": ("a.ts:2:30 - error TS2322", 'age: "3"', "~~~", BUT_NOT, "TS2339"),
    "uv": ("outlast-no-such-package-x was not found",),
    "vite": ("Could not resolve './nope.js' in index.js", "index.js:2:15"),
    "vitest": ("cart > adds up", "expected 5 to be 10", "cart.test.mjs:10:26", "toBe(10)", "^", BUT_NOT, "same object"),
    "webpack": ("ERROR in ./index.js 1:0", "Module parse failed", "> 1 |"),
    "yarn_404": ('Couldn\'t find package "outlast-no-such-package-x"',),
    "zsh_not_found": ("command not found: nosuchtool",),
}  # fmt: skip


def search(text: str) -> Excerpt | None:
    error = FirstError()
    error.feed(text)
    return error.finish()


def describe(excerpt: Excerpt | None) -> str:
    return "\n".join([f"line {excerpt.line_number}", *excerpt.lines]) if excerpt else "nothing"


@pytest.mark.parametrize("name", OUTPUTS)
def test_excerpt_is_the_expected_one(name: str):
    found = describe(search(OUTPUTS[name]))
    assert found == (HERE / "expected" / f"{name}.txt").read_text().removesuffix("\n")


@pytest.mark.parametrize("name", ESSENTIALS)
def test_excerpt_contains_what_explains_the_failure(name: str):
    essentials = ESSENTIALS[name]
    middle = essentials.index(BUT_NOT) if BUT_NOT in essentials else len(essentials)
    excerpt = search(OUTPUTS[name])
    assert excerpt is not None
    text = "\n".join(excerpt.lines)
    assert [part for part in essentials[:middle] if part not in text] == []
    assert [part for part in essentials[middle + 1 :] if part in text] == []


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name.startswith("ok_")])
def test_output_of_a_command_that_succeeded_has_no_error(name: str):
    assert search(OUTPUTS[name]) is None


def test_first_line_of_the_excerpt_has_the_number_that_it_says():
    for name, text in OUTPUTS.items():
        if excerpt := search(text):
            line = text.split("\n")[excerpt.line_number - 1]
            assert excerpt.lines[0].strip("…") in line, name
