//! The guide texts that follow the flags in the `--help` of commands.

/// Guide at the end of `--help` of the trace commands.
pub(crate) const TRACE_GUIDE: &str = "\
EXAMPLES
  probe_sync check traces/ --run-dir run
  probe_sync align traces/ --run-dir run --output aligned/
  probe_sync merge traces/ --run-dir run --output combined.pftrace --validate
  probe_sync align rank*.pt.trace.json.gz --offsets offsets.jsonl --output aligned/
  probe_sync align a.json b.json --nodes 0-1 --offsets offsets.csv --output aligned/
  probe_sync align rank*.pt.trace.json.gz --from-collectives --output aligned/
  probe_sync stragglers traces/ --run-dir run --json=late.json

WHICH NODE WROTE A TRACE
  probe_sync uses the host name in the trace if the run had only one node on that host, otherwise the rank in a job of the
  same size. It uses neither file names nor the order of the list; only a Flight Recorder dump has its rank at the end of its
  name. If neither is conclusive, give --nodes or --assume-order.
  For profilers that record no rank (JAX), put an event named probe_sync.rank#RANK/SIZE into the trace.

WHICH TIMES
  Events must lie between the start of the node's first window and the end of its last. Other traces are rejected unless
  --extrapolate covers the difference; the message says how much is needed.

Next to its output, each command writes alignment_stats.json (for several outputs, a folder of that name): events, timestamps outside the
measured time or moved to keep their order, corrections, uncertainty.
Times are on the clock of the reference node, as recorded with the offsets (otherwise node 0).
Symbolic links are followed. Output to a pipe or a device has no statistics file.";

/// Guide at the end of `status --help`.
pub(crate) const STATUS_GUIDE: &str = "\
READING THE TABLE
  offset   this node's clock minus the reference's, at the middle of the last window
  rate     how fast the offset grows; 1 ppm is 1 us per second
  ±95 %    half-width of the 95 % interval of the offset
  hard     limits of the offset, as distances from the one shown: no offset outside them can have
           produced the observed packets, unless within the window a clock jumped, its rate varied by
           more than 3 ppm, or two clocks' rates differed by more than 500 ppm
  state    ok; disturbed: its clock was stepped or slewed in that window; unsettled: the estimate is still
           converging; unreachable: no packets connect it to the reference, and the values shown are old

STATES
  running    rounds arrive on time
  paused     rounds arrive, but probing is paused (probe_sync ctl pause)
  stalled    the next round is late by more than three quarters of a window: check rank 0's log and whether its process is stopped
  broken     stalled, and no process on this host has the directory open: rank 0 was killed or runs on another host
  ended      the run has written its report";

/// Guide at the end of `--help`.
pub(crate) const GUIDE: &str = "\
EXAMPLES
  probe_sync demo                            the whole workflow on this machine, checked against the truth
  mpirun -n 64 probe_sync                    alongside a job, until Ctrl-C
  probe_sync run --local 8 --duration 12s    8 processes on this machine, without MPI
  RANK=3 WORLD_SIZE=16 MASTER_ADDR=node0 MASTER_PORT=29500 probe_sync
                                             under any launcher that sets torchrun's variables
  probe_sync doctor                          this machine; mpirun -n 8 probe_sync doctor --peers for all hosts of a job
  probe_sync merge traces/ --run-dir probe_sync_out --output one_clock.pftrace

READING THE TABLE
  offset   this node's clock minus the reference's, at the middle of the last window.
           SUBTRACT it from a time on this node to get a time on the reference clock.
           The reference is node 0 unless --reference names another.
  rate     how fast the offset grows; 1 ppm is 1 us per second.
  ±95 %    half-width of the 95 % interval, including path asymmetry as far as the graph's loops reveal it.
  hard     no offset outside this interval can have produced the observed packets, unless within the
           window a clock jumped, its rate varied by more than 3 ppm (see clock_events), or two
           clocks' rates differed by more than 500 ppm.

SETTINGS are taken from flags, then PROBE_SYNC_<KEY> variables, then --config FILE, then defaults. Keys are the flags' names
with underscores. Unknown keys are errors. -v or PROBE_SYNC_LOG=debug shows more.
Variables and keys of the XLA distributed profiler are used if the corresponding setting is not given (docs/xla.md).";
