"""From a cluster file to what one `up` is to start: the plan, the code and the secrets, read on the controller.

And how each host is told of it, and what it may answer.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.hooks import Post
from dtctl.bundle import Bundle
from dtctl.config.cluster import Cluster
from dtctl.errors import PreflightError
from dtctl.model import Host, SshSettings
from dtctl.operations.client.conversation import controller_name, request
from dtctl.operations.environments import environment_files
from dtctl.operations.local import find_hooks, find_secrets, known_secrets, local_python, make_local, scan_code
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.up.conflicts import check_may_go_without
from dtctl.plan.hosts import output_places
from dtctl.plan.roster import RunPlan
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest, host_spec, run_spec

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from dtctl.agent.records.spec import Spec
    from dtctl.operations.checks import CheckContext


Hostname = Callable[[SshSettings], str]
"""The name that SSH would connect to, by its own configuration."""


@dataclass(frozen=True)
class Start:
    """What one `up` is to start."""

    plan: RunPlan
    record: RunRecord
    bundle: Bundle
    digest: str
    controller: str
    """user@host, for those who find the run later."""
    secrets: Mapping[str, str]
    authority: Authority | None
    """By which the run's agents know each other; None where there is only one."""
    replace: bool
    replan: Callable[[Cluster], RunPlan] | None = None
    """Makes the plan when the hosts have chosen ports; None: they choose none."""
    adopt_output: bool = False
    """Output directories are taken over from other clusters."""
    hooks: tuple[Post, ...] = field(default=(), repr=False)
    """Those that the coordinator tells."""
    context: CheckContext | None = None
    """Checks of the hosts that are sent along with the start."""
    allow_missing: int | None = None
    """So many hosts may be done without; None where that is no choice of the command's."""
    environment_files: Mapping[str, str] = field(default_factory=dict)
    """What the trainers' environment is made of: files of the code, with their SHA-256."""
    wheels: Mapping[str, str] = field(default_factory=dict)
    """Host -> the bundle of those that it installs."""

    @functools.cached_property
    def run_spec(self) -> Spec:
        """What all hosts have in common."""
        assert self.record.run is not None
        return run_spec(
            self.plan,
            run=self.record.run,
            digest=self.digest,
            bundle=self.bundle.id,
            created=self.record.created,
            controller=self.controller,
            replaced=self.record.replaced,
            code=self.bundle.code_id[:12],
        )

    @property
    def expects_revival(self) -> bool:
        """Hosts are to bring the agents back by themselves when they have been restarted."""
        return not self.record.is_local and self.plan.cluster.recovery.reboot == "auto"


def make_plan(cluster: Cluster, hostname: Hostname, *, local: bool = False) -> RunPlan:
    """`local`: with all hosts on this machine."""
    cluster = make_local(cluster) if local else cluster
    names = {
        host.name: hostname(host.reach)
        for host in cluster.hosts.values()
        if isinstance(host.reach, SshSettings) and not host.address
    }
    return plan_run(cluster, names, local_python=local_python(os.environ))


def prepare_check(
    cluster: Cluster,
    hostname: Hostname,
    environ: Mapping[str, str],
    *,
    local: bool = False,
    deep: bool = False,
    network_speed: bool = False,
    allowed_here: bool = False,
) -> tuple[CheckContext, RunRecord]:
    """Of a cluster that is not started. `local`: on this machine. The others: see CheckContext."""
    from dtctl.operations.checks.checking import context_of

    plan = make_plan(cluster, hostname, local=local)
    known: Mapping[str, str] = {}
    with suppress(PreflightError):  # `up` reports an env file that cannot be used
        known = known_secrets(cluster, environ)
    context = context_of(
        plan, deep=deep, network_speed=network_speed, hostname=hostname, allowed_here=allowed_here, secrets=known
    )
    return context, record_of(plan)


def prepare_launch(
    cluster: Cluster,
    hostname: Hostname,
    environ: Mapping[str, str],
    bundle: Bundle | None = None,
    *,
    local: bool = False,
    replace: bool = False,
    adopt_output: bool = False,
    check: bool = False,
    allow_missing: int | None = None,
    make_local: Callable[[Cluster], Cluster] = make_local,
) -> Start:
    """Raises PreflightError for code that cannot be sent and for secrets that are nowhere to be found.

    The caller has the user's consent to what starts on this machine. `bundle`: that of the code, where it has been
    looked at already. `check`: the hosts are to report on themselves. `allow_missing`: so many hosts may be
    done without; None where that is no choice of the command's.
    """
    from dtctl.operations.checks.checking import context_of

    found, hooks = find_secrets(cluster, environ), find_hooks(cluster, environ)
    bundle = bundle or scan_code(cluster)
    computed = digest(cluster, f"{bundle.id} local" if local else bundle.id)
    plan = make_plan(make_local(cluster) if local else cluster, hostname)
    created = time.time()
    run = run_id(cluster.name, created)
    record = record_of(plan, run, created)
    if allow_missing:
        check_may_go_without(plan)
    return Start(
        plan=plan,
        record=record,
        bundle=bundle,
        digest=computed,
        controller=controller_name(),
        secrets=found,
        authority=Authority(run) if len(record.hosts) > 1 else None,
        replace=replace,
        replan=lambda cluster: make_plan(cluster, hostname),
        adopt_output=adopt_output,
        hooks=hooks,
        context=context_of(plan, brief=True, allowed_here=True, bundle=bundle.id, secrets=found) if check else None,
        allow_missing=allow_missing,
        environment_files=environment_files(cluster),
    )


def run_id(cluster: str, now: float) -> str:
    """Sorts by time, and two controllers never make the same."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(2)}"


def up_request(launch: Start, host: Host, absent: Iterable[str] = ()) -> dict[str, Any]:
    """`absent`: of a run that continues already."""
    record = launch.record
    hooks = launch.plan.cluster.hooks.values()
    spec = host_spec(launch.plan, host.name, launch.run_spec, absent, files=launch.environment_files)
    if spec["environment"] is not None:
        spec["environment"]["wheels"] = launch.wheels.get(host.name)
    return {
        **request(record, host, "up"),
        "spec": spec,
        "bundle": spec["bundle"],
        "secrets": launch.secrets if spec["bundle"] else {},  # an arbiter trains nothing
        "credentials": _credentials(launch, host),
        "hooks": list(launch.hooks) if host.name in coordinators(launch.plan) else [],
        "withheld": list(dict.fromkeys(name for hook in hooks for name in hook.variables)),
        "replace": launch.replace,
        "file": os.path.realpath(launch.plan.cluster.file),
        "outputs": list(output_places(launch.plan.cluster, launch.plan.dirs[host.name])) if spec["bundle"] else [],
    }


def _credentials(launch: Start, host: Host) -> dict[str, str] | None:
    """Of a run on one host nobody dials anybody."""
    if launch.authority is None:
        return None
    coordinates = host.name in coordinators(launch.plan)
    return dataclasses.asdict(launch.authority.issue(host.name, coordinates=coordinates))


def coordinators(plan: RunPlan) -> set[str]:
    """Hosts that coordinate the run, or may be elected to."""
    return {plan.coordinator["host"], *(voter["host"] for voter in plan.voters)}


_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
"""No well-defined end (RFC 5280, 4.1.2.5). With the beginning: valid whatever the hosts' clocks say."""


@dataclass(frozen=True)
class Credentials:
    """Of one host: a private key, the certificate of it that names the host, and the authority's, as PEM texts.

    `knock` is the same for all hosts of the run: what they answer the coordinator's port with before TLS begins.
    """

    key: str = field(repr=False)
    certificate: str
    authority: str
    knock: str = field(repr=False)


class Authority:
    """Says who the hosts of one run are. Its key never leaves this process: nobody can be added to the run later.

    `issue` may be called by several threads at once; it takes a fraction of a millisecond.
    """

    def __init__(self, run: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._run = run
        self._knock = secrets.token_hex(32)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(8))])
        builder = _builder(self._name, self._name, self._key.public_key(), self._key.public_key())
        self._certificate = _sealed(
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(
                _usage(key_cert_sign=True), critical=True
            ),
            self._key,
        )

    def issue(self, host: str, *, coordinates: bool) -> Credentials:
        """New credentials of one host, which can dial with them; one that coordinates, or may, can be dialled."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        ends = [ExtendedKeyUsageOID.CLIENT_AUTH, *[ExtendedKeyUsageOID.SERVER_AUTH] * coordinates]
        # A common name holds 64 characters, a host's name has up to 253.
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"dtctl:{self._run}/{host}")])
        builder = (
            _builder(self._name, x509.Name([]), key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(ends), critical=False)
            .add_extension(names, critical=True)
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Credentials(private.decode("ascii"), _sealed(builder, self._key), self._certificate, self._knock)


def _builder(
    issuer: x509.Name, subject: x509.Name, public: ec.EllipticCurvePublicKey, signer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGINNING)
        .not_valid_after(_END)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sealed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode("ascii")
