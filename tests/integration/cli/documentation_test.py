"""Goal: the manual pages and completions that `mayfly documentation` writes can be used.
Method: the programs that read them (groff, bash, zsh) check the files, where they are installed; in
bash some words are completed, too. tests/unit/cli/documentation_test.cpp checks that the texts are
complete.
"""
import pathlib
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import expect

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_mayfly
printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    expect(done.returncode == 0 and not done.stderr, f"{command}: {done.stderr or done.returncode}")
    return done.stdout


def commands_of_help():
    """The first words of the indented lines of `mayfly --help`."""
    lines = run(mayfly_run.BINARY, "--help").splitlines()
    return [line.split()[0] for line in lines if line.startswith("  ")]


def pages_are_clean(folder, commands):
    names = sorted(path.name for path in folder.iterdir())
    wanted = sorted(["mayfly.1"] + [f"mayfly-{command}.1" for command in commands])
    expect(names == wanted, f"pages {names}, wanted {wanted}")
    for page in folder.iterdir():
        expect(page.stat().st_mode & 0o444 == 0o444, f"{page} cannot be read by all")
        if shutil.which("groff"):
            run("groff", "-man", "-ww", "-Tutf8", "-z", str(page))


def completed(script, *words):
    return run("bash", "-c", COMPLETE, "bash", str(script), mayfly_run.BINARY, *words).split()


def bash_completes(script, commands):
    run("bash", "-n", str(script))
    expect(completed(script, "") == commands, "not every command is offered")
    expect(completed(script, "tr") == ["train"], "tr is not completed to train")
    expect("--global-batch" in completed(script, "train", "--gl"), "no flags of train")
    expect("--run-dir" in completed(script, "status", "job", "--"), "no flags after an argument")
    expect(completed(script, "bench", "allr") == ["allreduce"], "no names of benchmarks")
    expect("--sizes" in completed(script, "bench", "allreduce", "--"), "no flags of a benchmark")
    expect("release" in completed(script, "cloud", ""), "no literal words")
    expect(completed(script, "train", "--data", "fi") == [], "file names are left to readline")


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mayfly-test-"))
    run(mayfly_run.BINARY, "documentation", str(folder / "share"))
    commands = commands_of_help()
    pages_are_clean(folder / "share/man/man1", commands)
    bash_completes(folder / "share/bash-completion/completions/mayfly", commands)
    if shutil.which("zsh"):
        run("zsh", "-n", str(folder / "share/zsh/site-functions/_mayfly"))
    shutil.rmtree(folder)


main()
