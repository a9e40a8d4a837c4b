"""Checkpoints on the disk of worker 0 alone, of variables that every worker holds a copy of."""

import shutil

import tensorflow as tf


class LeadCheckpoints:
    """What CheckpointManager does, where the workers share no file system.

    `step`: the variable that counts the steps, a part of `checkpoint`. `scratch`: where the other workers write
    copies that no program reads. Every worker makes the same calls.
    """

    def __init__(self, strategy, checkpoint, step, directory, scratch):
        self._strategy, self._checkpoint, self._step = strategy, checkpoint, step
        self._counter = checkpoint.save_counter  # else restoring would make this variable, on worker 0 alone
        self._is_lead = not strategy.cluster_resolver.task_id
        if not self._is_lead:
            shutil.rmtree(scratch, ignore_errors=True)
        self._manager = tf.train.CheckpointManager(checkpoint, directory if self._is_lead else scratch, max_to_keep=3)

    def restore(self, variables):
        """Gives the newest values that worker 0 has to the variables of all workers. The step, 0 at the beginning."""
        if self._is_lead:
            self._manager.restore_or_initialize()

        def take_from_lead(variable):
            replica = tf.distribute.get_replica_context()
            value = variable.read_value() if replica.replica_id_in_sync_group == 0 else tf.zeros_like(variable)
            variable.assign(replica.all_reduce(tf.distribute.ReduceOp.SUM, value))

        @tf.function
        def copy():
            for variable in [*variables, self._step]:
                self._strategy.run(take_from_lead, args=(variable,))

        copy()
        return int(self._step.numpy())

    def save(self):
        """Returns when worker 0 has its checkpoint. All save, since some variables are summed over the workers then."""
        self._manager.save(checkpoint_number=int(self._step.numpy()))
        if not self._is_lead:
            shutil.rmtree(self._manager.directory, ignore_errors=True)
        self._meet()

    @tf.function
    def _meet(self):
        self._strategy.reduce("SUM", self._strategy.run(lambda: tf.ones([])), axis=None)
