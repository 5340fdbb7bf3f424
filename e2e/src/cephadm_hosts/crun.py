#!/usr/bin/python3
# crun, without the limit of processes of a container.
import json
import os
import sys

words = sys.argv[1:]
for at, word in enumerate(words):
    if word in ("--bundle", "-b"):
        path = os.path.join(words[at + 1], "config.json")
        with open(path) as file:
            config = json.load(file)
        if config.get("linux", {}).get("resources", {}).pop("pids", None) is not None:
            with open(path, "w") as file:
                json.dump(config, file)
os.execv("/usr/bin/crun", ["crun"] + words)
