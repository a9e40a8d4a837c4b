"""Checks whether trainers can use the run's storage URLs on this host: in their own Python, started as for them."""

from __future__ import annotations

from ...host.secrets import Masks
from ...records.kinds import made
from ...records.values import CODE
from ...run import environment
from .records import PythonAsked, UrlsFacts, UrlsQuestion, UrlTried
from .software import Python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ...conversation import Conversation


LIMIT_S = 90.0
"""The time limit of one Python: importing TensorFlow takes long, and a distant storage does not answer at once."""

MOST_BYTES = 1 << 30
"""What access to a storage may take of the host's memory, beside what importing the library took."""

_PROBE = """\
import re
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
# tensorflow/core/platform/cloud (tsl): it tries ten times otherwise, for minutes
os.environ.update(GCS_RETRY_CONFIG_MAX_RETRIES="1", GCS_REQUEST_CONNECTION_TIMEOUT_SECS="15",
    GCS_METADATA_REQUEST_TIMEOUT_SECS="15", GCS_WRITE_REQUEST_TIMEOUT_SECS="20", GCS_READ_REQUEST_TIMEOUT_SECS="20")

class ByTensorflow:
    def __init__(self):
        import tensorflow
        self.name = "TensorFlow " + tensorflow.__version__
        self.files = tensorflow.io.gfile
        if "tensorflow_io" in asked["modules"]:
            import tensorflow_io
    def write(self, url):
        with self.files.GFile(url, "w") as file:
            file.write("x")
    def read(self, url):
        with self.files.GFile(url) as file:
            file.read()
    def list(self, url):
        # an empty answer names no reason
        if not self.files.isdir(url) and not self.files.exists(url):
            self.files.listdir(url)
    def has(self, url):
        return self.files.exists(url)
    def remove(self, url):
        self.files.remove(url)

class ByFsspec:
    def __init__(self):
        import fsspec
        self.name = "fsspec " + fsspec.__version__
        self.open = lambda url: fsspec.core.url_to_fs(url, skip_instance_cache=True)
    def write(self, url):
        system, path = self.open(url)
        system.pipe_file(path, b"x")
    def read(self, url):
        system, path = self.open(url)
        system.cat_file(path)
    def list(self, url):
        system, path = self.open(url)
        if not system.exists(path):
            raise FileNotFoundError(path + " is not there")
    def has(self, url):
        system, path = self.open(url)
        return system.exists(path)
    def remove(self, url):
        system, path = self.open(url)
        system.rm_file(path)

KINDS = {"NotFoundError": "missing", "FileNotFoundError": "missing", "NoSuchBucket": "missing",
    "PermissionDeniedError": "denied", "UnauthenticatedError": "denied", "PermissionError": "denied",
    "NoCredentialsError": "denied", "PartialCredentialsError": "denied", "DefaultCredentialsError": "denied",
    "RefreshError": "denied", "UnimplementedError": "scheme", "ImportError": "scheme", "ModuleNotFoundError": "scheme"}

def bound_memory():
    # what a server answers may be endless, and the host runs other programs; a library is imported by then
    import resource
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[5]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (used + asked["most_bytes"], hard))
    except (OSError, ValueError):
        pass  # a lower limit than that is set already

def words(error):
    text = " ".join(str(error)[:100000].replace("/" + asked["name"], "").split())
    said = re.search(r'"message": *"([^"]{1,400})"', text)
    code = re.search(r"HTTP response code [0-9]+", text)
    short = code.group() + ": " + said.group(1) if said and code else text
    return (short or type(error).__name__)[:500]

UNRESOLVED = re.compile(
    r"(?i)could ?n[o']t resolve (?:host|proxy)|name or service not known|name resolution|nodename nor servname|"
    r"getaddrinfo|gaierror|unknownhostexception|no address associated with hostname|name does not resolve")

def chain(error):
    # a library tells its own error, and what the system said stands behind it
    seen = []
    while error is not None and error not in seen and len(seen) < 10:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen

def kind(error):
    if any(UNRESOLVED.search("%s: %s" % (type(one).__name__, str(one)[:100000])) for one in chain(error)):
        return "unresolved"
    if str(getattr(error, "code", "")) in ("401", "403"):
        return "denied"
    names = [one.__name__ for one in type(error).__mro__]
    return next((KINDS[name] for name in names if name in KINDS), "other")

MAKERS = {"tensorflow": ByTensorflow, "fsspec": ByFsspec}
problems = []
def libraries():
    for name in asked["libraries"]:
        if isinstance(MAKERS[name], type):
            try:
                MAKERS[name] = MAKERS[name]()
                bound_memory()
            except BaseException as error:
                MAKERS[name] = None
                problems.append(words(error) if isinstance(error, ImportError) else "%s: %s" % (
                    type(error).__name__, words(error)))
        if MAKERS[name] is not None:
            yield MAKERS[name]

def attempt(library, one):
    url = one["url"].rstrip("/")
    probe = "%s/%s" % (url, asked["name"])
    found = {"url": one["url"], "library": library.name, "doing": "", "kind": "", "said": "", "saved": False}
    written = False
    try:
        if one["write"]:
            found["doing"] = "write"
            library.write(probe)
            written = True
            found["doing"] = "read"
            library.read(probe)
        found["doing"] = "list"
        library.list(url)
        found["saved"] = one["write"] and library.has(url + "/checkpoint")
        found["doing"] = ""
    except Exception as error:
        found["kind"], found["said"] = kind(error), words(error)
    if written:
        try:
            library.remove(probe)
        except Exception as error:
            if not found["kind"]:
                found["doing"], found["kind"], found["said"] = "remove", kind(error), words(error)
    return found

tried = []
for one in asked["urls"]:
    first = None
    for library in libraries():
        found = attempt(library, one)
        first = first or found
        if found["kind"] != "scheme":
            break
    else:
        found = first
    if found:
        tried.append(found)
answer = {"problem": "" if tried else "; ".join(problems), "tried": tried}
"""


def urls_facts(talk: Conversation, question: UrlsQuestion) -> UrlsFacts:
    path, made_of = question["variables"].get("PATH", ""), question["environment"]
    python = Python(talk.root, made(PythonAsked, program=question["program"], path=path, environment=made_of))
    name = ".dtctl-check-%s-%s" % (question["token"], question["host"])
    wanted = {
        "urls": question["urls"],
        "name": name,
        "libraries": question["libraries"],
        "modules": question["modules"],
        "most_bytes": MOST_BYTES,
    }
    answer = python.run(_PROBE, wanted, LIMIT_S, _variables(question, python.marks))
    masks = Masks(question["secrets"].values())
    hide = masks.hide_text
    if not isinstance(answer, dict):
        answer = {"problem": python.found["problem"], "tried": []}
    tried = [made(UrlTried, **dict(one, said=hide(one["said"]))) for one in answer["tried"]]
    return {"path": python.found["path"], "problem": hide(answer["problem"]), "tried": tried}


def _variables(question: UrlsQuestion, marks: environment.Marks) -> Dict[str, str]:
    """The trainers' variables, except those that contain the code directory, which does not exist yet."""
    proxies = {name: value for name, value in environment.base().items() if name.lower() in environment.PROXIES}
    given = {name: value for name, value in question["variables"].items() if CODE not in value}
    return {**(proxies if question["keep_proxy"] else {}), **marks.values(given), **question["secrets"]}
