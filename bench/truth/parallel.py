"""A made job with tensor, pipeline and data parallelism, whose every time is known.

Imported by jobs.py. 16 ranks on 4 hosts: tensor groups of 4 on one host, 2 stages of a pipeline, 2 replicas. A rank's stream computes and takes part in
operations of NCCL, which begin when the rank is ready and end on all members when the last one was. In some steps a known rank is late to a
known operation. The events are those of a PyTorch profiler on NVIDIA's devices: the names and arguments are taken from recorded ones, the times are made.
"""

import random

TENSOR, STAGES, REPLICAS = 4, 2, 2
RANKS, HOSTS = TENSOR * STAGES * REPLICAS, 4
MICROBATCHES, US = 4, 1000
# Late to the sum over all ranks in every fourth step, and to two in its tensor group two steps later. Neither is on host 1, whose clock is furthest ahead in the run of
# run.py: raw times would name that host's ranks, no matter which rank is late.
LATE_TO_ALL, LATE_IN_GROUP, EVERY = 10, 2, 4
LATE_TO_ALL_NS, LATE_IN_GROUP_NS = 4_000_000, 1_500_000
# What NCCL calls its kernels since 2.19, and before.
KERNELS = {
    "new": {"allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"},
    "old": {"allreduce": "ncclKernel_AllReduce_RING_LL_Sum_bf16(ncclWorkElem)", "send": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"},
}


class Rank:
    """One rank's events; times are ns of the true clock."""

    def __init__(self, number, start_ns, naming):
        self.number, self.ready_ns, self.host_ns, self.naming = number, start_ns, start_ns, naming
        self.events, self.correlation = [], 100

    def event(self, start_ns, end_ns, category, name, tid, args, pid=None):
        self.events.append(({"ph": "X", "cat": category, "name": name, "pid": 4000 + self.number if pid is None else pid, "tid": tid, "args": args}, (start_ns, end_ns)))
        return len(self.events) - 1

    def launch(self, call, args, tid=1):
        """Adds the host's call, which runs ahead of the stream by some 30 µs."""
        self.correlation += 1
        at = max(self.host_ns, self.ready_ns - 30 * US)
        self.event(at, at + 6 * US, "cuda_runtime", call, tid, {"External id": self.correlation, "correlation": self.correlation})
        self.host_ns = at + 8 * US
        if args is not None:
            about = {"External id": self.correlation, **args}
            self.event(at - 2 * US, at + 7 * US, "cpu_op", "record_param_comms", tid, about)
        return at + 8 * US

    def kernel(self, start_ns, end_ns, name, stream, args):
        about = {"External id": self.correlation, "device": 0, "context": 1, "stream": stream, "correlation": self.correlation, **args}
        return self.event(start_ns, end_ns, "kernel", name, stream, about, pid=0)

    def compute(self, ns, name="sm90_xmma_gemm_bf16bf16_bf16f32"):
        start = max(self.launch("cudaLaunchKernel", None), self.ready_ns)
        self.kernel(start, start + ns, name, 7, {})
        self.ready_ns = start + ns + 2 * US


class Job:
    """Ranks and what they do together."""

    def __init__(self, start_ns, steps, naming="new", seed=7):
        self.chance = random.Random(seed)
        self.ranks = [Rank(number, start_ns, naming) for number in range(RANKS)]
        self.operations, self.late_steps, self.naming = [], {}, naming
        everyone = list(range(RANKS))
        self.tensor = [everyone[first : first + TENSOR] for first in range(0, RANKS, TENSOR)]
        # Stage s of replica r has the tensor group r * STAGES + s.
        half = TENSOR * STAGES
        self.replicas = [[rank, rank + half] for rank in range(half)]
        self.pipeline = [[rank, rank + TENSOR] for replica in range(REPLICAS) for rank in everyone[replica * half : replica * half + TENSOR]]
        groups = [everyone, *self.tensor, *self.replicas, *self.pipeline]
        self.names = {tuple(group): str(number) for number, group in enumerate(groups)}
        for step in range(steps):
            self.step(step)

    def groups_of(self, rank):
        return [(name, list(group)) for group, name in self.names.items() if rank in group]

    def together(self, group, stream, kind="allreduce", elements=1 << 20):
        """Adds one operation of a group; the members leave within 2 µs of one another, after the last has come."""
        args = {"Collective name": kind, "In msg nelems": elements, "Out msg nelems": elements, "Group size": len(group), "dtype": "BFloat16"}
        args |= {"In split size": "[]", "Out split size": "[]", "Process Group Name": self.names[tuple(group)], "Process Group Ranks": str(group)}
        starts = {}
        for number in group:
            rank = self.ranks[number]
            starts[number] = max(rank.launch("cudaLaunchKernelExC", args), rank.ready_ns)
        done = max(starts.values()) + 60 * US + elements // 100 + self.chance.randrange(20 * US)
        members = {}
        for number, start in starts.items():
            rank = self.ranks[number]
            end = done + self.chance.randrange(2 * US)
            members[number] = rank.kernel(start, end, KERNELS[self.naming]["allreduce" if kind == "allreduce" else "send"], stream, args)
            rank.ready_ns = end + US
        if kind == "allreduce":
            self.operations.append({"id": f"{self.names[tuple(group)]}/{len(self.operations)}", "group": self.names[tuple(group)], "members": members})

    def step(self, number):
        begun = {rank.number: max(rank.host_ns, rank.ready_ns - 30 * US) for rank in self.ranks}
        # The first event of a step is its own.
        places = {rank.number: rank.event(begun[rank.number], begun[rank.number], "user_annotation", f"ProfilerStep#{number}", 1, {}) for rank in self.ranks}
        work = lambda: 300 * US + self.chance.randrange(40 * US)  # noqa: E731
        for microbatch in range(MICROBATCHES):
            for stage in range(STAGES):
                for replica in range(REPLICAS):
                    group = self.tensor[replica * STAGES + stage]
                    for _ in range(2):
                        for rank in group:
                            self.ranks[rank].compute(work())
                        if LATE_IN_GROUP in group and number % EVERY == EVERY // 2 and microbatch == 1:
                            self.ranks[LATE_IN_GROUP].ready_ns += LATE_IN_GROUP_NS // 2
                        self.together(group, 20)
                    if stage == 0:
                        for pair in self.pipeline[replica * TENSOR : (replica + 1) * TENSOR]:
                            self.together(pair, 24, "send", 1 << 16)
        for rank in self.ranks:
            rank.compute(2 * work(), "backward_kernel")
        for pair in self.replicas:
            self.together(pair, 28, elements=1 << 22)
        if number % EVERY == 0:
            self.ranks[LATE_TO_ALL].ready_ns += LATE_TO_ALL_NS
            self.late_steps[number] = LATE_TO_ALL
        self.together(list(range(RANKS)), 32, elements=1 << 25)
        for rank in self.ranks:
            rank.compute(200 * US, "multi_tensor_apply_kernel")
            event, (start, _) = rank.events[places[rank.number]]
            rank.events[places[rank.number]] = (event, (start, max(rank.host_ns, rank.ready_ns - 40 * US)))
