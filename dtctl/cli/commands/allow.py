"""dtctl allow"""

from __future__ import annotations

from dtctl.cli.options import ClusterFile, Local, OutputOption, Scope, on_cluster


@on_cluster
def allow(scope: Scope, cluster_file: ClusterFile = None, local: Local = False, output: OutputOption = "text") -> None:
    """Show what the cluster file would start on this machine (hooks, local hosts), and allow just that."""
    from dtctl.operations.consent import Consents, programs_here
    from dtctl.render import errors
    from dtctl.render import hooks as shown
    from dtctl.render.machine import document, results

    cluster = scope.cluster(cluster_file)
    programs = programs_here(cluster, local=local)
    consents = Consents()
    new = consents.missing(programs)
    if output == "text" and programs:
        shown.show_programs(programs)
    consents.allow(new)
    if output == "json":
        return document.print_json("Allow", results.allow(programs, new))
    if not programs:
        return errors.note(f"nothing to allow: {cluster.file} starts nothing on this machine")
    return errors.note("allowed; you will be asked again when that changes" if new else "allowed already")
