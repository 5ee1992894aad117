//! What `--help` of the commands teaches after their flags.
//!
//! Place in the flow: under `args`; that of `convert` has a file of its own. What it does not do: parse.

/// What `--help` of the trace commands teaches.
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
  The host name in the trace decides if the run recorded it for one node only, otherwise the rank in a job of the same
  size. File names and the order of the list are never used. If nothing decides, give --nodes or --assume-order.
  Profilers that record no rank (JAX): put an event named probe_sync.rank#RANK/SIZE into the trace.

WHICH TIMES
  Events must lie between the start of the node's first window and the end of its last. Others are refused unless
  --extrapolate reaches that far; the message says how far that is.

Next to an output is its alignment_stats.json, for several in a folder of that name: events, timestamps outside the measured
time or moved to keep their order, corrections, uncertainty.
Times are on the clock of the reference node, which the offsets state (node 0 if they do not).
Symbolic links are followed; a pipe or a device is written through, without statistics next to it.";

/// What `--help` of `status` teaches.
pub(crate) const STATUS_GUIDE: &str = "\
READING THE TABLE
  offset   this node's clock minus the reference's, at the middle of the last window
  rate     how fast the offset grows; 1 ppm is 1 us per second
  ±95 %    half-width of the 95 % interval of the offset
  hard     an offset farther than this from the one shown cannot have produced the packets that
           were seen, unless within the window a clock jumped, its rate varied by more than 3 ppm,
           or two clocks' rates differed by more than 500 ppm
  state    ok; disturbed: its clock was stepped or slewed in that window; unsettled: the estimate is still
           converging; unreachable: no packets tie it to the reference, and the values shown are old

STATES
  running    rounds arrive on time
  paused     rounds arrive, and a user asked that no node sends packets
  stalled    the next round is late by more than three quarters of a window: read the log of rank 0, and see whether its process is stopped
  broken     stalled, and no process of this host holds the directory: rank 0 was killed, or runs on another host
  ended      there is a report";

/// What `--help` teaches after the flags.
pub(crate) const GUIDE: &str = "\
EXAMPLES
  probe_sync demo                            the whole way on this machine, judged against the truth
  mpirun -n 64 probe_sync                    next to a job, until Ctrl-C
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
  ±95 %    half-width of the 95 % interval, path asymmetry included as far as the graph's loops show it.
  hard     an offset outside this interval cannot have produced the packets that were seen,
           unless within the window a clock jumped, its rate varied by more than 3 ppm (see
           clock_events), or two clocks' rates differed by more than 500 ppm.

SETTINGS come from flags, then PROBE_SYNC_<KEY> variables, then --config FILE, then defaults. Keys are the flags' names
with underscores. Unknown keys are errors. -v or PROBE_SYNC_LOG=debug shows more.
Variables and keys of the XLA distributed profiler are read where none of ours is given (docs/xla.md).";
