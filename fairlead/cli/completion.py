"""`fairlead completion`: the script that makes a shell complete commands, flags, kinds and the names of objects.

Owns nothing but the choice of the shell: the scripts are click's, and they call the program itself (see complete.py).
"""

from __future__ import annotations

import click

HOW = {
    "bash": "source <(fairlead completion bash)            # in ~/.bashrc",
    "zsh": "source <(fairlead completion zsh)             # in ~/.zshrc, after compinit",
    "fish": "fairlead completion fish | source             # in ~/.config/fish/config.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(HOW)))
def command(shell: str) -> None:
    """Print the completion script of a shell. Names come from the server, within 300 ms or not at all.

    \b
    source <(fairlead completion bash)            # in ~/.bashrc
    source <(fairlead completion zsh)             # in ~/.zshrc, after compinit
    fairlead completion fish | source             # in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from fairlead.cli.frame import fairlead

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    made = kind(fairlead, {}, "fairlead", "_FAIRLEAD_COMPLETE")
    click.echo(made.source_template % made.source_vars())
