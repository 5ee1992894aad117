//! The guide text of `convert --help`.

/// Guide at the end of `convert --help`.
pub(crate) const CONVERT_GUIDE: &str = "\
EXAMPLES
  probe_sync convert -i rank*.pt.trace.json.gz -f pftrace -d traces -o job --run-dir probe_sync_out
                                             all ranks in traces/job_results.pftrace, on one clock
  probe_sync convert -i rank0.pt.trace.json.gz -f pftrace --start 30% --end 40%
  probe_sync convert -i node*/*_results.db -f pftrace json.gz --group-by-queue
                                             databases of rocprofv3, their kernels on HSA queues
  probe_sync convert -i node*.xplane.pb -f pftrace --run-dir probe_sync_out
                                             XSpaces: planes as processes, lines as threads or streams
  probe_sync convert -i rank*.db -f kineto.gz xspace -d traces -o job --run-dir probe_sync_out
                                             for each trace traces/job_TRACE.pt.trace.json.gz (HTA, TensorBoard) and .xplane.pb (xprof)

Slices of a row that overlap without nesting move to extra rows below it; none is dropped or shortened. Traces are read once, however many formats
are written, and memory use does not depend on their size; intermediate data goes to TMPDIR.
Without --run-dir, --offsets or --from-collectives each trace keeps its own clock.";
