"""The command `mayfly` of an installed wheel, whose folder _bundle contains the program."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bundle", "mayfly")
    if not os.path.exists(program):
        sys.exit("this package does not contain the program mayfly: it was not installed from a "
                 "wheel")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
