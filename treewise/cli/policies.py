"""`treewise policies`: every policy that a spec string may name."""

from dataclasses import asdict

import typer
from rich.text import Text

from treewise.cli._options import AsJson
from treewise.cli._show import console, figures_table, print_json
from treewise.policy.registry import describe_policies

SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("policies")(policies)


def policies(as_json: AsJson = False) -> None:
    """List the policies, their spec strings and their settings with defaults."""
    found = describe_policies()
    if as_json:
        rows = [{**asdict(policy), "settings": dict(policy.settings)} for policy in found]
        print_json({"schema_version": SCHEMA_VERSION, "policies": rows})
        return
    table = figures_table("policies", "name", ())
    table.add_column("default spec")
    table.add_column("what it does, and its settings")
    for policy in found:
        settings = ", ".join(f"{name}={value}" for name, value in policy.settings)
        table.add_row(Text(policy.name), Text(policy.spec), Text(f"{policy.summary}\n{settings}".strip()))
    console().print(table)
