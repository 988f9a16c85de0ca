"""Commands of ``grand`` in children of a process that has the library imported.

An import takes longer than most of them. The process is forked before any other code of a page runs, so
that nothing of that code is seen by a command.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

SHELL = set("|&;<>$`()*?{}~=\\")  # characters that mean something to a shell


def commands_of(code: str) -> list[list[str]] | None:
    """The words of each line, if all are plain commands, of ``grand`` or others; else nothing."""
    if SHELL & set(re.sub(r"(^|\s)#.*", "", code, flags=re.M)):
        return None
    return [words for words in (shlex.split(line, comments=True) for line in code.splitlines()) if words]


class Server:
    """A process that runs commands in forks of itself."""

    def __init__(self) -> None:
        there, self._answers = os.pipe(), os.pipe()
        self._orders = os.fdopen(there[1], "w")
        self.pid = os.fork()
        if self.pid == 0:
            os.close(there[1])
            self._serve(os.fdopen(there[0]), os.fdopen(self._answers[1], "w"))
            os._exit(0)
        os.close(there[0])
        os.close(self._answers[1])
        self._replies = os.fdopen(self._answers[0])

    def run(self, words: list[str], folder: Path, limit: int) -> tuple[int, str]:
        """Exit code and output of ``grand`` with these words."""
        print(json.dumps([words, str(folder), limit]), file=self._orders, flush=True)
        code, output = json.loads(self._replies.readline())
        return code, output

    def close(self) -> None:
        self._orders.close()
        os.waitpid(self.pid, 0)

    @staticmethod
    def _serve(orders: Any, answers: Any) -> None:
        import sklearn.linear_model  # noqa: F401
        import torch_geometric.nn  # noqa: F401

        import graphdiffusion.cli
        import graphdiffusion.report
        import graphdiffusion.training.trainer

        for line in orders:
            words, folder, limit = json.loads(line)
            with tempfile.TemporaryFile("w+") as output:
                child = os.fork()
                if child == 0:
                    signal.alarm(limit)
                    os.chdir(folder)
                    os.dup2(output.fileno(), 1)
                    os.dup2(output.fileno(), 2)
                    code = 1
                    try:
                        code = graphdiffusion.cli.main(words[1:])
                    except BaseException as error:
                        print(repr(error), file=sys.stderr)
                    finally:
                        sys.stdout.flush()
                        sys.stderr.flush()
                        os._exit(code)
                _, status = os.waitpid(child, 0)
                output.seek(0)
                answer = [os.waitstatus_to_exitcode(status), output.read()]
                print(json.dumps(answer), file=answers, flush=True)
