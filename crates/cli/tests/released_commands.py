"""Lists the commands and options of reference pages, for the test that none of them is lost.

    for commit in $(git log --format=%h -- docs/reference/command_line.md); do
        git show $commit:docs/reference/command_line.md
    done | python3 crates/cli/tests/released_commands.py > crates/cli/tests/it/released_commands.txt

released_commands.txt is the list of 2026-11-27, from all pages since the first, of 2026-11-25: it also has options that were renamed between
two of them. A line is a command, or a command and one of its options; `-` stands for no command.
"""

import re
import sys

SECTION = re.compile(r"## probe_sync ?(.*)")
OPTION = re.compile(r"(?:  -(\w), |      )--([\w-]+)")
ALIASES = re.compile(r"\[aliases?: ([^\]]+)\]")

command = None
found = []
for line in sys.stdin:
    if section := SECTION.match(line):
        command = section.group(1) or "-"
        found.append(command)
    elif option := OPTION.match(line):
        found += [f"{command} --{option.group(2)}"] + ([f"{command} -{option.group(1)}"] if option.group(1) else [])
    for aliases in ALIASES.findall(line):
        found += [f"{command} {alias}" for alias in aliases.split(", ") if alias.startswith("-")]
print("\n".join(sorted(set(found))))
