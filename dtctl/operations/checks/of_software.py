"""What can be wrong with the trainers' Pythons: rows of the table of `check`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

PYTHON_MISSING = Signature(
    "python_missing",
    Level.ENDS,
    "the Python that a task is to be started with is not there",
    "the command of each task, on its host",
    "{hosts} has no {python}, with which {tasks} is to be started",
    (
        "dtctl exec {at} -- python3 --version    shows what the host has",
        "trainer.python or hosts.NAME.python in cluster.yaml names another; trainer.setup may make one",
    ),
)
PYTHON_TO_COME = Signature(
    "python_to_come",
    Level.NOTE,
    "the Python of a task is not there, and trainer.setup may make it",
    "the command of each task, on its host",
    "{hosts} has no {python} yet, so trainer.setup has to make it",
    ("dtctl up    runs the setup first",),
)
PYTHON_BROKEN = Signature(
    "python_broken",
    Level.ENDS,
    "the Python of a task does not start, or does not answer",
    "what it prints",
    "{python} on {hosts} cannot be used: {said}",
    ("dtctl exec {at} -- {python} --version    shows it",),
)
PYTHON_NOT_STARTED = Signature(
    "python_not_started",
    Level.NOTE,
    "the file chooses a Python of this machine, and you have not allowed it to start programs here",
    "`transport: local` or `--local`, and what `dtctl allow` has stored",
    "{python} of {hosts} was not asked: it would start on this machine, and you have not allowed it",
    ("dtctl allow    shows what cluster.yaml would start here, and allows it",),
)
MODULES_MISSING = Signature(
    "modules_missing",
    Level.ENDS,
    "a program imports a module that its Python does not have",
    "the imports of the program's text, looked for by its Python",
    "{tasks} will fail on {hosts}: the program imports {modules}, which {python} does not have",
    (
        "dtctl exec {at} -- {python} -m pip install {packages}",
        "trainer.setup: {python} -m pip install {packages}    in cluster.yaml: then every start sees to it",
        "or another Python that has it: trainer.python in cluster.yaml",
    ),
)
SYNTAX_ERROR = Signature(
    "syntax_error",
    Level.ENDS,
    "a program is not valid Python",
    "the program's text, read by the Python of dtctl, where that is not older than the host's",
    "{tasks} will fail on {hosts}: {file}:{line}: {said}",
    ("correct {file}, then dtctl up",),
)
MODULES_TO_COME = Signature(
    "modules_to_come",
    Level.NOTE,
    "a module is missing, and trainer.setup may install it",
    "the imports of the program's text, looked for by its Python",
    "{python} on {hosts} does not have {modules} yet, so trainer.setup has to install it",
    ("dtctl up    runs the setup first",),
)
IMPORT_FAILS = Signature(
    "import_fails",
    Level.ENDS,
    "a module is there and cannot be imported",
    "a real import, with --deep",
    "{tasks} will fail on {hosts}: {python} cannot import {module}: {said}",
    ("dtctl exec {at} -- {python} -c 'import {module}'    shows all that it says",),
)
TENSORFLOW_DIFFERS = Signature(
    "framework_differs",
    Level.BLOCKS,
    "tasks would talk to each other with several versions of their framework",
    "the packages of every task's Python",
    "{package} is not the same everywhere: {versions}. Its servers talk to each other, and need one version",
    ("dtctl exec {at} -- {python} -m pip install {package}=={version}",),
)
VERSIONS_DIFFER = Signature(
    "packages_differ",
    Level.SLOWS,
    "hosts have several versions of a package that trains or saves",
    "the packages of every task's Python",
    "{package} is not the same everywhere: {versions}. What one task saves or sends, another may not read",
    ("dtctl exec {at} -- {python} -m pip install {package}=={version}",),
)
PYTHONS_DIFFER = Signature(
    "pythons_differ",
    Level.SLOWS,
    "hosts have several versions of Python",
    "every task's Python",
    "Python is not the same everywhere: {versions}. What one task pickles, another may not read",
    ("trainer.python or hosts.NAME.python in cluster.yaml names the one to use",),
)
ESTIMATOR_GONE = Signature(
    "estimator_gone",
    Level.ENDS,
    "a program uses tf.estimator, and TensorFlow is newer than 2.15",
    "the program's text, and the version of TensorFlow",
    "{tasks} will fail on {hosts}: the program uses tf.estimator, which TensorFlow {version} does not have any more "
    "(2.15 was the last)",
    ("dtctl exec {at} -- {python} -m pip install 'tensorflow<2.16'    needs Python 3.11 or older",),
)
KERAS_3_FIT = Signature(
    "keras_3_fit",
    Level.ENDS,
    "a program calls fit under ParameterServerStrategy with Keras 3",
    "the program's text, and the version of Keras",
    "{tasks} will fail on {hosts}: fit under ParameterServerStrategy does not work with Keras {version}; with Keras 2 "
    "it does",
    (
        "dtctl exec {at} -- {python} -m pip install tf_keras",
        "trainer.env.TF_USE_LEGACY_KERAS: '1' in cluster.yaml",
    ),
)
TENSORBOARD_MISSING = Signature(
    "summaries_without_tensorboard",
    Level.ENDS,
    "a program writes tf.summary, and the package tensorboard is missing",
    "the program's text, and the packages of its Python",
    "{tasks} will fail on {hosts}: the program writes tf.summary, which needs the package tensorboard (TensorFlow "
    "{version} does not bring it)",
    ("dtctl exec {at} -- {python} -m pip install tensorboard",),
)
CUDA_MISSING = Signature(
    "cuda_missing",
    Level.SLOWS,
    "tasks are given GPUs, and TensorFlow would not find CUDA's libraries",
    "pip's packages of NVIDIA, LD_LIBRARY_PATH and the usual places, where a task has GPUs",
    "{tasks} on {hosts} is given GPUs and would train on processors: no CUDA library is found for TensorFlow there",
    (
        "dtctl exec {at} -- {python} -m pip install 'tensorflow[and-cuda]'",
        "or name their place: trainer.env.LD_LIBRARY_PATH in cluster.yaml",
    ),
)
CPU_ONLY = Signature(
    "tensorflow_without_gpus",
    Level.SLOWS,
    "tasks are given GPUs, and their TensorFlow was built for processors alone",
    "the packages of every task's Python",
    "{tasks} on {hosts} is given GPUs and would train on processors: {package} knows none",
    (
        "dtctl exec {at} -- {python} -m pip uninstall -y {package}",
        "dtctl exec {at} -- {python} -m pip install 'tensorflow[and-cuda]'",
    ),
)

ROWS = (
    PYTHON_MISSING,
    PYTHON_TO_COME,
    PYTHON_BROKEN,
    PYTHON_NOT_STARTED,
    MODULES_MISSING,
    SYNTAX_ERROR,
    MODULES_TO_COME,
    IMPORT_FAILS,
    TENSORFLOW_DIFFERS,
    VERSIONS_DIFFER,
    PYTHONS_DIFFER,
    ESTIMATOR_GONE,
    KERAS_3_FIT,
    TENSORBOARD_MISSING,
    CUDA_MISSING,
    CPU_ONLY,
)
