"""dtctl push"""

from __future__ import annotations

from dtctl.cli.exits import exit_for
from dtctl.cli.options import ClusterFile, Local, OutputOption, Overrides, Quiet, Scope, on_cluster


@on_cluster
def push(
    scope: Scope,
    cluster_file: ClusterFile = None,
    overrides: Overrides = None,
    local: Local = False,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Send the code to the hosts and start nothing."""
    from dtctl.operations.history.record import record_of
    from dtctl.operations.push import push as bring
    from dtctl.operations.up.local import make_local, scan_code
    from dtctl.plan.roster import plan_roster
    from dtctl.render import errors
    from dtctl.render.left_out import show_left_out
    from dtctl.render.machine import document, results
    from dtctl.render.progress import UpProgress
    from dtctl.render.terminal import console
    from dtctl.render.words import count, size, summarize_hosts

    cluster = scope.cluster(cluster_file, overrides, needs_files=True)
    record = record_of(plan_roster(make_local(cluster) if local else cluster))
    bundle = scan_code(cluster)
    show_left_out(bundle, cluster.file)
    kept = "nothing was started; the hosts keep what has arrived"
    with (
        scope.left(kept, "dtctl push    sends the rest"),
        UpProgress(record.hosts, quiet=quiet or output == "json") as progress,
    ):
        outcome = bring(record, bundle, scope.transport, progress)
    alike: dict[int, list[str]] = {}
    for host, sent in outcome.sent_files.items():
        alike.setdefault(sent, []).append(host)
    if output == "json":
        document.print_json("Push", results.push(outcome, bundle))
    else:
        for sent, hosts in alike.items():
            what = f"{count(sent, 'file')} sent" if sent else "already had everything"
            console.say(f"{summarize_hosts(hosts)}: {what}")
        errors.note(f"code {bundle.id[:12]}: {count(len(bundle.manifest.files), 'file')}, {size(bundle.total_bytes)}")
    errors.show_host_errors(outcome.errors)
    exit_for(outcome.errors, others=outcome.sent_files)
