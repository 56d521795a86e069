"""Checks that each planted bug of tests/mutants fits the sources: its text occurs exactly once."""

import sys

from sources import finish, root_argument

LEAST = 36


def mutants_of(root):
    folder = str(root / "tests/mutants")
    sys.path.insert(0, folder)
    try:
        import mutants  # pylint: disable=import-outside-toplevel
    finally:
        sys.path.remove(folder)
    return mutants.MUTANTS


def problems(root, mutants=None):
    found = []
    names = set()
    mutants = mutants_of(root) if mutants is None else mutants
    for mutant in mutants:
        place = f"tests/mutants/mutants.py: {mutant.name}"
        path = root / mutant.file
        count = path.read_text().count(mutant.old) if path.is_file() else 0
        if count != 1:
            found.append(f"{place}: its old text is {count} times in {mutant.file}; bring it up to "
                         "date with the source")
        if mutant.old == mutant.new:
            found.append(f"{place}: changes nothing")
        if mutant.name in names:
            found.append(f"{place}: there are two of that name")
        names.add(mutant.name)
    return found


def too_few(mutants):
    return [f"tests/mutants/mutants.py: {len(mutants)} bugs, at least {LEAST} are wanted"] \
        if len(mutants) < LEAST else []


if __name__ == "__main__":
    finish(problems(root_argument()) + too_few(mutants_of(root_argument())))
