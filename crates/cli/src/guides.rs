//! What `--help` of the commands teaches after their flags.
//!
//! Place in the flow: under `args`; that of `convert` has a file of its own. What it does not do: parse.

/// What `--help` of the trace commands teaches.
pub(crate) const TRACE_GUIDE: &str = "\
EXAMPLES
  probe_sync align --trace node1.xplane.pb --node 1 --run-dir probe_sync_out --output node1.aligned.xplane.pb
  probe_sync align --traces rank*.pt.trace.json.gz --offsets offsets.jsonl --output aligned/
  probe_sync align --traces a.json b.json --nodes 0 1 --offsets offsets.csv --output aligned/
  probe_sync align --traces rank*.pt.trace.json.gz --from-collectives --output aligned/
  probe_sync merge --traces node*.xplane.pb --run-dir probe_sync_out --output combined.xplane.pb --validate
  probe_sync check --traces rank*.pt.trace.json.gz --run-dir probe_sync_out --json check.json
  probe_sync stragglers --traces rank*.pt.trace.json.gz --run-dir probe_sync_out --json=late.json

WHOSE TRACE
  A trace belongs to the node for which the run recorded its host, where that is one node's alone, or its rank in a job of as many
  ranks. Its file's name and its place in the list say nothing. Where nothing is recorded: --nodes, or --assume-order.
  A profiler that writes no rank (JAX): put an event named probe_sync.rank#RANK/SIZE into the trace.

WHEN
  Events must lie between the start of the node's first window and the end of its last. Others are refused unless --extrapolate
  reaches as far; the message says how far that is.

Beside an output lies its alignment_stats.json, for several in a folder of that name: events, timestamps outside the measured time range
or moved to keep their order, corrections, uncertainty.
Times end on the clock of the reference node, which the offsets state (node 0 where they do not).
An output that is a link is followed; a pipe or a device is written through, without statistics beside it.";

/// What `--help` of `status` teaches.
pub(crate) const STATUS_GUIDE: &str = "\
READING THE TABLE
  offset   this node's clock minus the reference's, at the middle of the last window
  rate     how fast the offset grows; 1 ppm is 1 us per second
  ±95 %    half-width of the 95 % interval of the offset
  hard     an offset farther than this from the one shown cannot have produced the packets that
           were seen, unless within the window a clock jumped, its rate varied by more than 3 ppm,
           or two clocks' rates differed by more than 500 ppm
  state    ok; disturbed: its clock was stepped or slewed in that window; unsettled: its offset is not yet as sure as it will be;
           unreachable: no packets tie it to the reference, and what is shown is old

STATES
  running    rounds come in time
  paused     the same; somebody asked that no node sends packets
  stalled    the next round is late by more than three quarters of a window: look at the log of rank 0, and whether its process is stopped
  broken     the same, and no process of this host holds the directory: rank 0 was killed, or runs on another host
  ended      there is a report";

/// What `--help` teaches after the flags.
pub(crate) const GUIDE: &str = "\
EXAMPLES
  mpirun -n 64 probe_sync                    beside a job, one offset per node every 4 s, until Ctrl-C
  mpirun -n 8 probe_sync --duration 12s --window 2s --inject-skew 7
                                             try it: real packets, virtual clocks, known truth
  probe_sync run --local 8 --duration 12s    the same processes without MPI
  RANK=3 WORLD_SIZE=16 MASTER_ADDR=node0 MASTER_PORT=29500 probe_sync
                                             started by any launcher that sets torchrun's variables
  probe_sync solve --probes out/probes/*.jsonl --out offsets.jsonl
  probe_sync solve --packets capture.csv --window 1s --out offsets.jsonl
  probe_sync compose --masters runs/top --region a=runs/a --region b=runs/b --out offsets.jsonl
                                             two sites on one timeline
  probe_sync doctor                          this machine; mpirun -n 8 probe_sync doctor --peers for all hosts of a job

READING THE TABLE
  offset   this node's clock minus the reference's, at the middle of the last window.
           SUBTRACTING it turns a time on this node into a time on the reference clock.
           The reference is node 0 unless --reference names another.
  rate     how fast the offset grows; 1 ppm is 1 us per second.
  ±95 %    the estimate's own error bar, path asymmetry included as far as the graph's loops show it.
  hard     an offset outside this interval cannot have produced the packets that were seen,
           unless within the window a clock jumped, its rate varied by more than 3 ppm (see
           clock_events), or two clocks' rates differed by more than 500 ppm.

SETTINGS come from flags, then PROBE_SYNC_<KEY> variables, then --config FILE, then defaults. Keys are the flags' names
with underscores (the cadence is probe_cadence). Unknown keys are errors. -v or PROBE_SYNC_LOG=debug shows more.
Variables and keys of the XLA distributed profiler are read as ours where none of ours is given (docs/xla.md).";
